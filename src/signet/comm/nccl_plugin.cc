// libsignet_nccl.so: what plugin.h asks of GPUs, over NCCL. Shards need not be equal, so that a
// reduce-scatter is a reduction to every rank and an all-gather a broadcast from every rank, each in one
// group: as many bytes move, and NCCL runs them together.
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "signet/comm/plugin.h"

namespace {

static_assert(sizeof(ncclUniqueId) == kSignetIdBytes);

struct Group {
  ncclComm_t communicator = nullptr;
  int size = 1;
};
Group& group(void* handle) { return *static_cast<Group*>(handle); }
cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

int device(char* out, int64_t bytes) {
  int index = 0;
  if (cudaGetDevice(&index) != cudaSuccess) return ncclUnhandledCudaError;
  return cudaDeviceGetPCIBusId(out, static_cast<int>(bytes), index) == cudaSuccess ? 0
                                                                                   : ncclUnhandledCudaError;
}

int unique_id(void* out) {
  ncclUniqueId id;
  const ncclResult_t error = ncclGetUniqueId(&id);
  std::memcpy(out, &id, sizeof id);
  return error;
}

int open_group(const void* id_bytes, int rank, int size, void** handle) {
  ncclUniqueId id;
  std::memcpy(&id, id_bytes, sizeof id);
  auto* made = new (std::nothrow) Group;
  if (!made) return ncclSystemError;
  made->size = size;
  const ncclResult_t error = ncclCommInitRank(&made->communicator, size, id, rank);
  if (error != ncclSuccess) {
    delete made;
    return error;
  }
  *handle = made;
  return 0;
}

// Calls one(i) for every i below `count`, all in one group.
template <class One>
int grouped(int64_t count, One one) {
  ncclResult_t error = ncclGroupStart();
  for (int64_t i = 0; i < count && error == ncclSuccess; ++i) error = one(i);
  const ncclResult_t end = ncclGroupEnd();
  return error != ncclSuccess ? error : end;
}

int reduce_scatter(void* handle, float* data, const int64_t* bounds, void* stream) {
  return grouped(group(handle).size, [&](int64_t rank) {
    float* const part = data + bounds[rank];
    const int64_t count = bounds[rank + 1] - bounds[rank];
    return count == 0 ? ncclSuccess
                      : ncclReduce(part, part, static_cast<size_t>(count), ncclFloat, ncclSum,
                                   static_cast<int>(rank), group(handle).communicator, stream_of(stream));
  });
}
int all_gather(void* handle, const SignetPiece* pieces, int64_t count, void* stream) {
  return grouped(count, [&](int64_t i) {
    const SignetPiece& piece = pieces[i];
    return piece.bytes == 0
               ? ncclSuccess
               : ncclBroadcast(piece.data, piece.data, static_cast<size_t>(piece.bytes), ncclChar, piece.from,
                               group(handle).communicator, stream_of(stream));
  });
}
int all_reduce(void* handle, double* data, int64_t size, void* stream) {
  return ncclAllReduce(data, data, static_cast<size_t>(size), ncclDouble, ncclSum, group(handle).communicator,
                       stream_of(stream));
}

void close_group(void* handle, int failed) {
  if (!handle) return;
  failed ? ncclCommAbort(group(handle).communicator) : ncclCommDestroy(group(handle).communicator);
  delete &group(handle);
}

const char* message(int error) { return ncclGetErrorString(static_cast<ncclResult_t>(error)); }

}  // namespace

extern "C" __attribute__((visibility("default")))
const SignetCollectives signet_collectives = {kSignetCollectivesVersion,
                                              "NCCL",
                                              device,
                                              unique_id,
                                              open_group,
                                              reduce_scatter,
                                              all_gather,
                                              all_reduce,
                                              close_group,
                                              message};
