// Stopping cleanly: Ctrl-C, kill and a batch system's warning are noted and acted on between two steps.
#pragma once

#include <string>

#include "signet/base/error.h"

namespace signet {

// While one lives, SIGINT, SIGTERM, SIGHUP (the terminal is gone), SIGUSR1 (Slurm's --signal) and SIGXCPU
// (the soft limit on processor time) are only acknowledged on stderr and set requested(); the loop that owns
// it saves and stops. A SIGINT after any of them kills at once, as by default. They may nest, inner ones on
// any thread: the outermost one installs and restores the handlers, and a request stays until it is gone.
// After one SIGXCPU is ignored, since that comes again every second while the process ends. A signal that was
// ignored when the process started (nohup) stays ignored.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;

  static int requested();              // 0, or the signal's number
  static void acknowledge_silently();  // from now on: another process speaks for this one
  // The Error that ends the process with the right exit code: 130 after SIGINT, else 75.
  [[noreturn]] static void fail_stopped(int signal, const std::string& what_was_saved);
};

// From now on the handlers of StopSignal run on a stack of their own when they interrupt this thread. A
// library whose code keeps data below its stack pointer (oneDNN's products do) would find it overwritten.
void use_signal_stack();

// Memory may run out where nothing can be thrown, such as a destructor of a library that allocates
// (nlohmann's JSON does). Then the process still says so and ends with kResource instead of an abort.
void report_out_of_memory_on_terminate();

// Throws kResource where this process may have too little address space (ulimit -v) for the libraries of
// matrix products and threads: short of it they crash, abort or hang, where nothing can be caught.
void require_address_space();

// A closed pipe after us (`signet ... | head`) and a file longer than `ulimit -f` allows make writes fail
// instead of killing a run half-way.
void ignore_write_signals();

// To be returned from main: flushes stdout. When its reader has gone, ends the process silently as SIGPIPE
// would have; when it could not be written, says so and returns kResource (disk full) or kFailure.
int finish_stdout(int exit_code);

}  // namespace signet
