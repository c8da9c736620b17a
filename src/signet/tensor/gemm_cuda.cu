#include <cublasLt.h>

#include <array>
#include <map>
#include <mutex>
#include <type_traits>

#include "signet/tensor/cuda_check.h"
#include "signet/tensor/device.h"
#include "signet/tensor/gemm.h"

namespace signet {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

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
    if (!memory.data()) memory = DeviceBuffer(DeviceKind::kCuda, kWorkspaceBytes);
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

Library& library() {
  static Library* const instance = new Library;  // lives as long as the process: streams may outlive statics
  return *instance;
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

// cuBLASLt is column-major, so the row-major C = op(A) op(B) is asked for as C^T = op(B)^T op(A)^T.
template <class T>
Plan make_plan(const Gemm<T>& p, cudaDataType_t in, cudaDataType_t out, const Key& key) {
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
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceBytes});
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<uint32_t>(key[10] >> 10));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<uint32_t>(key[10] & 1023));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<uint32_t>(key[13]));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<uint32_t>(key[11]));
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoGetHeuristic(library().handle(), plan.operation, plan.first, plan.second, plan.addend,
                                     plan.result, preference, 1, &found, &count);
  cublasLtMatmulPreferenceDestroy(preference);
  if (status != CUBLAS_STATUS_SUCCESS || count == 0)
    fail(ErrorCode::kFailure, "cuBLASLt has no algorithm for a {} x {} x {} product (row strides {}, {}, {})",
         p.m, p.n, p.k, p.lda, p.ldb, p.ldc);
  plan.algorithm = found.algo;
  return plan;
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
  const Plan& plan = lt.plan(key, [&] { return make_plan(p, in, out, key); });
  check(cublasLtMatmul(lt.handle(), plan.operation, &alpha, p.b, plan.first, p.a, plan.second, &beta, addend,
                       plan.addend, c, plan.result, &plan.algorithm, lt.workspace(stream), kWorkspaceBytes,
                       stream),
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
