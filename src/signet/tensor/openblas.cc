#include "signet/tensor/openblas.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <cstdlib>

#include "signet/base/error.h"
#include "signet/base/thread_pool.h"

namespace signet {
namespace {

// OpenBLAS ends the process when it finds no memory for its buffers, one per thread that calls it.
void require_memory() {
  constexpr size_t kLibrary = 48 << 20, kBuffer = 32 << 20;
  const size_t bytes = kLibrary + kBuffer * static_cast<size_t>(thread_count());
  void* probe = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (probe == MAP_FAILED)
    fail(ErrorCode::kResource, "out of memory: OpenBLAS needs {} MiB of address space (ulimit -v)",
         bytes >> 20);
  ::munmap(probe, bytes);
}

OpenBlas load() {
  require_memory();
  ::setenv("OPENBLAS_NUM_THREADS", "1", 1);  // the thread pool owns the cores, and sums keep their order
  void* library = nullptr;
  for (const char* name : {"libopenblas.so.0", SIGNET_OPENBLAS})
    if (!library) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = ::dlerror();
    fail(ErrorCode::kFailure, "cannot load OpenBLAS ({}); install libopenblas0",
         why ? why : "no reason given");
  }
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, name));
    if (!function) fail(ErrorCode::kFailure, "OpenBLAS has no {}; install libopenblas0", name);
  };
  OpenBlas blas;
  find("cblas_sgemm", blas.sgemm);
  find("cblas_dgemm", blas.dgemm);
  find("dgeev_", blas.dgeev);
  find("dgees_", blas.dgees);
  find("dgesvd_", blas.dgesvd);
  return blas;
}

}  // namespace

const OpenBlas& openblas() {
  static const OpenBlas blas = load();
  return blas;
}

}  // namespace signet
