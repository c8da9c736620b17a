// libsignet_mpi.so: plugin.h over MPI. The program loads it when a launcher has started it with several
// ranks.
#include <mpi.h>

#include <array>
#include <cstdint>

#include "signet/comm/plugin.h"

namespace {

constexpr int kTag = 7;

int open_mpi(int* rank, int* size) {
  int initialized = 0;
  if (const int error = MPI_Initialized(&initialized)) return error;
  if (!initialized) {
    int provided = 0;
    // One thread at a time calls it, but not always the same.
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided)) return error;
    if (provided < MPI_THREAD_SERIALIZED) return MPI_ERR_UNSUPPORTED_OPERATION;
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  if (const int error = MPI_Comm_rank(MPI_COMM_WORLD, rank)) return error;
  return MPI_Comm_size(MPI_COMM_WORLD, size);
}

int begin(int error, MPI_Request* request, void** out) {
  if (error) {
    delete request;
    return error;
  }
  *out = request;
  return 0;
}
int send(const void* data, int64_t bytes, int to, void** out) {
  auto* request = new MPI_Request;
  return begin(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, kTag, MPI_COMM_WORLD, request), request,
               out);
}
int receive(void* data, int64_t bytes, int from, void** out) {
  auto* request = new MPI_Request;
  return begin(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, kTag, MPI_COMM_WORLD, request),
               request, out);
}
int test(void** handle, int* done) {
  auto* request = static_cast<MPI_Request*>(*handle);
  if (const int error = MPI_Test(request, done, MPI_STATUS_IGNORE)) return error;
  if (*done) delete request;
  return 0;
}
void abort_all(int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); }
int close_mpi() { return MPI_Finalize(); }
const char* message(int error) {
  static std::array<char, MPI_MAX_ERROR_STRING> text;
  int length = 0;
  return MPI_Error_string(error, text.data(), &length) ? "unknown error" : text.data();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const SignetMessages signet_messages = {
    kSignetMessagesVersion, "MPI", open_mpi, send, receive, test, abort_all, close_mpi, message};
