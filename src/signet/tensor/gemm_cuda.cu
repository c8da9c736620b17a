#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>

#include "signet/tensor/cuda_check.h"
#include "signet/tensor/device.h"
#include "signet/tensor/gemm.h"
#include "signet/tensor/packet.cuh"

namespace signet {
namespace {

void check(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(ErrorCode::kFailure, "{}: cuBLASLt error {}: {}", what, static_cast<int>(status),
         cublasLtGetStatusString(status));
}

// Descriptors and the algorithm found for one shape.
struct Plan {
  cublasLtMatmulDesc_t operation;
  cublasLtMatrixLayout_t first, second, addend, result;
  cublasLtMatmulAlgo_t algorithm;
};

using Key = std::array<int64_t, 14>;

class Library {
 public:
  Library() { check(cublasLtCreate(&handle_), "cublasLtCreate"); }
  cublasLtHandle_t handle() const { return handle_; }
  void* workspace(cudaStream_t stream) {
    DeviceBuffer& memory = workspaces_[stream];
    if (!memory.data()) memory = DeviceBuffer(DeviceKind::kCuda, kGemmWorkspaceBytes);
    return memory.data();
  }
  void free_workspace(cudaStream_t stream) { workspaces_.erase(stream); }
  template <class Make>
  const Plan& plan(const Key& key, Make make) {
    const auto found = plans_.find(key);
    return found != plans_.end() ? found->second : plans_.emplace(key, make()).first->second;
  }
  std::mutex mutex;

 private:
  cublasLtHandle_t handle_{};
  std::map<cudaStream_t, DeviceBuffer> workspaces_;
  std::map<Key, Plan> plans_;
};

// Of the current device. It lives as long as the process: streams may outlive statics.
Library& library() {
  static auto& libraries = *new PerGpu<std::unique_ptr<Library>>;
  return *libraries.get([] { return std::make_unique<Library>(); });
}

// The largest power of two, up to 256, that divides the address.
int64_t alignment(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer) | 256;
  return static_cast<int64_t>(address & (~address + 1));
}

cublasLtMatrixLayout_t layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t ld) {
  cublasLtMatrixLayout_t out;
  check(
      cublasLtMatrixLayoutCreate(&out, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), ld),
      "cublasLtMatrixLayoutCreate");
  return out;
}

constexpr int kProposals = 8;  // that are tried

// Whether looking for the fastest algorithm pays: some tens of milliseconds, once.
template <class T>
bool worth_trying(const Gemm<T>& p, cudaStream_t stream) {
  constexpr double kLarge = 1e10;
  if (2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) < kLarge)
    return false;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status == cudaStreamCaptureStatusNone;
}

// Numbers in [-1, 1) that differ from place to place.
template <class T>
__global__ void fill_kernel(T* values, int64_t count) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 12345u;
    x = (x ^ (x >> 15)) * 2246822519u, x = (x ^ (x >> 13)) * 3266489917u;
    values[i] = from_float<T>(static_cast<float>(static_cast<int32_t>(x)) * 0x1p-31f);
  }
}
__global__ void difference_kernel(const uint16_t* a, const uint16_t* b, int64_t count, int* differ) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x)
    if (a[i] != b[i]) *differ = 1;
}

// The fastest of the algorithms that cuBLASLt proposes for a product, among those that give the same bits as
// its first proposal: how long they take differs from run to run, what comes out must not. Operands are made
// for the purpose. Where the GPU has no room for them it stays with the first.
template <class T>
class Trial {
 public:
  Trial(const Gemm<T>& p, const Plan& plan, void* workspace, bool wide, cudaStream_t stream)
      : plan_(plan), workspace_(workspace), stream_(stream) {
    first_count_ = (p.transpose_b ? p.n : p.k) * p.ldb, second_count_ = (p.transpose_a ? p.k : p.m) * p.lda;
    const int64_t element = wide ? sizeof(float) : sizeof(T);
    beta_ = p.accumulate || p.addend ? 1 : 0;
    addend_bytes_ = beta_ != 0 ? p.m * (p.addend ? p.ld_addend : p.ldc) * element : 0;
    result_bytes_ = p.m * p.ldc * element;
  }
  cublasLtMatmulAlgo_t fastest(const cublasLtMatmulHeuristicResult_t* found, int count);

 private:
  bool run(const cublasLtMatmulAlgo_t& algorithm, void* to);
  float milliseconds(const cublasLtMatmulAlgo_t& algorithm);
  bool same_bits();  // of reference_ and result_

  static constexpr int kBlocks = 1024, kThreads = 256;
  const Plan& plan_;
  void* workspace_;
  cudaStream_t stream_;
  int64_t first_count_, second_count_, addend_bytes_, result_bytes_;
  float beta_;
  DeviceBuffer first_, second_, addend_, reference_, result_, differ_;
};

// cuBLASLt is column-major, so the row-major C = op(A) op(B) is asked for as C^T = op(B)^T op(A)^T.
template <class T>
Plan make_plan(const Gemm<T>& p, cudaDataType_t in, cudaDataType_t out, const Key& key, void* workspace,
               cudaStream_t stream) {
  Plan plan{};
  const cublasComputeType_t compute = !std::is_same_v<T, float>   ? CUBLAS_COMPUTE_32F
                                      : p.math == GemmMath::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                      : p.math == GemmMath::kBf16 ? CUBLAS_COMPUTE_32F_FAST_16BF
                                                                  : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescCreate(&plan.operation, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
  const cublasOperation_t first = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N,
                          second = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
        "gemm");
  check(cublasLtMatmulDescSetAttribute(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
        "gemm");
  plan.first = layout(in, p.transpose_b ? p.k : p.n, p.transpose_b ? p.n : p.k, p.ldb);
  plan.second = layout(in, p.transpose_a ? p.m : p.k, p.transpose_a ? p.k : p.m, p.lda);
  plan.result = layout(out, p.n, p.m, p.ldc);
  plan.addend = p.addend ? layout(out, p.n, p.m, p.ld_addend) : plan.result;

  cublasLtMatmulPreference_t preference;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value), "gemm");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(kGemmWorkspaceBytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key[10] >> 10));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key[10] & 1023));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key[13]));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key[11]));
  cublasLtMatmulHeuristicResult_t found[kProposals];
  int count = 0;
  const bool tried = worth_trying(p, stream);
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library().handle(), plan.operation, plan.first, plan.second, plan.addend,
                                     plan.result, preference, tried ? kProposals : 1, found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    fail(ErrorCode::kFailure, "cuBLASLt has no algorithm for a {} x {} x {} product (row strides {}, {}, {})",
         p.m, p.n, p.k, p.lda, p.ldb, p.ldc);
  plan.algorithm = found[0].algo;
  if (tried && count > 1)
    plan.algorithm = Trial<T>(p, plan, workspace, out == CUDA_R_32F, stream).fastest(found, count);
  return plan;
}

template <class T>
bool Trial<T>::run(const cublasLtMatmulAlgo_t& algorithm, void* to) {
  const float alpha = 1;
  return cublasLtMatmul(library().handle(), plan_.operation, &alpha, first_.data(), plan_.first,
                        second_.data(), plan_.second, &beta_, beta_ != 0 ? addend_.data() : to, plan_.addend,
                        to, plan_.result, &algorithm, workspace_, kGemmWorkspaceBytes,
                        stream_) == CUBLAS_STATUS_SUCCESS;
}

template <class T>
float Trial<T>::milliseconds(const cublasLtMatmulAlgo_t& algorithm) {
  constexpr int kRuns = 4;
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "cudaEventCreate");
  check_cuda(cudaEventCreate(&end), "cudaEventCreate");
  cudaEventRecord(begin, stream_);
  for (int i = 0; i < kRuns; ++i) run(algorithm, result_.data());
  cudaEventRecord(end, stream_);
  check_cuda(cudaEventSynchronize(end), "trial of a matrix product");
  float time = 0;
  cudaEventElapsedTime(&time, begin, end);
  cudaEventDestroy(begin), cudaEventDestroy(end);
  return time / kRuns;
}

template <class T>
bool Trial<T>::same_bits() {
  check_cuda(cudaMemsetAsync(differ_.data(), 0, sizeof(int), stream_), "trial of a matrix product");
  difference_kernel<<<kBlocks, kThreads, 0, stream_>>>(reference_.as<uint16_t>(), result_.as<uint16_t>(),
                                                       result_bytes_ / 2, differ_.as<int>());
  check_launch("trial of a matrix product");
  int differ = 1;
  check_cuda(cudaMemcpyAsync(&differ, differ_.data(), sizeof differ, cudaMemcpyDeviceToHost, stream_),
             "trial of a matrix product");
  check_cuda(cudaStreamSynchronize(stream_), "trial of a matrix product");
  return differ == 0;
}

template <class T>
cublasLtMatmulAlgo_t Trial<T>::fastest(const cublasLtMatmulHeuristicResult_t* found, int count) {
  const int64_t element = sizeof(T);
  try {
    first_ = DeviceBuffer(DeviceKind::kCuda, first_count_ * element);
    second_ = DeviceBuffer(DeviceKind::kCuda, second_count_ * element);
    addend_ = DeviceBuffer(DeviceKind::kCuda, addend_bytes_);
    reference_ = DeviceBuffer(DeviceKind::kCuda, result_bytes_);
    result_ = DeviceBuffer(DeviceKind::kCuda, result_bytes_);
    differ_ = DeviceBuffer(DeviceKind::kCuda, sizeof(int));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResource) throw;
    return found[0].algo;
  }
  fill_kernel<<<kBlocks, kThreads, 0, stream_>>>(first_.template as<T>(), first_count_);
  fill_kernel<<<kBlocks, kThreads, 0, stream_>>>(second_.template as<T>(), second_count_);
  check_launch("trial of a matrix product");
  for (const DeviceBuffer* each : {&addend_, &reference_, &result_})
    if (each->data())
      check_cuda(cudaMemsetAsync(each->data(), 0, static_cast<size_t>(each->bytes()), stream_),
                 "trial of a matrix product");
  // Less is what one run differs from the next by, and what a GPU at its power limit makes of it.
  constexpr float kWorthIt = 0.96f;
  int best = 0;
  float least = 0;
  for (int i = 0; i < count; ++i) {
    if (found[i].state != CUBLAS_STATUS_SUCCESS) continue;
    if (!run(found[i].algo, i == 0 ? reference_.data() : result_.data())) continue;
    if (i > 0 && !same_bits()) continue;
    const float time = milliseconds(found[i].algo);
    if (i == 0)
      least = kWorthIt * time;
    else if (time < least)
      best = i, least = time;
  }
  return found[best].algo;
}

}  // namespace

template <class T>
void gemm(const Gemm<T>& p, Cuda device) {
  if (p.m == 0 || p.n == 0) return;
  const cudaStream_t stream = stream_of(device);
  void* c = p.wide_c ? static_cast<void*>(p.wide_c) : static_cast<void*>(p.c);
  const bool wide = std::is_same_v<T, float> || p.wide_c;
  if (p.k == 0) {
    const size_t element = wide ? sizeof(float) : sizeof(T);
    if (p.addend)
      check_cuda(cudaMemcpy2DAsync(c, p.ldc * element, p.addend, p.ld_addend * element, p.n * element, p.m,
                                   cudaMemcpyDeviceToDevice, stream),
                 "gemm");
    else if (!p.accumulate)
      check_cuda(cudaMemset2DAsync(c, p.ldc * element, 0, p.n * element, p.m, stream), "gemm");
    return;
  }
  const cudaDataType_t in = std::is_same_v<T, float> ? CUDA_R_32F : CUDA_R_16BF,
                       out = wide ? CUDA_R_32F : CUDA_R_16BF;
  const Key key{p.m,
                p.n,
                p.k,
                p.lda,
                p.ldb,
                p.ldc,
                p.transpose_a + 2 * p.transpose_b,
                static_cast<int64_t>(p.math),
                in,
                out,
                alignment(p.b) << 10 | alignment(p.a),
                alignment(c),
                p.addend ? p.ld_addend : -1,
                p.addend ? alignment(p.addend) : alignment(c)};
  const float alpha = 1, beta = p.accumulate || p.addend ? 1 : 0;
  const void* addend = p.addend ? static_cast<const void*>(p.addend) : c;
  Library& lt = library();
  const std::lock_guard lock(lt.mutex);
  void* const workspace = p.workspace ? p.workspace : lt.workspace(stream);
  const Plan& plan = lt.plan(key, [&] { return make_plan(p, in, out, key, workspace, stream); });
  check(cublasLtMatmul(lt.handle(), plan.operation, &alpha, p.b, plan.first, p.a, plan.second, &beta, addend,
                       plan.addend, c, plan.result, &plan.algorithm, workspace, kGemmWorkspaceBytes, stream),
        "cublasLtMatmul");
}

void free_gemm_workspace(Cuda device) {
  Library& lt = library();
  const std::lock_guard lock(lt.mutex);
  lt.free_workspace(stream_of(device));
}

template void gemm(const Gemm<float>&, Cuda);
template void gemm(const Gemm<bf16>&, Cuda);

}  // namespace signet
