#include <gtest/gtest.h>

#include "signet/tensor/device.h"
#include "support/cuda.h"

namespace signet {

TEST(CudaDevice, ErrorsCarryTheNameOfTheCall) {
  try {
    check_cuda(cudaErrorInvalidValue, "some_kernel");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kFailure);
    EXPECT_NE(std::string(error.what()).find("some_kernel"), std::string::npos);
  }
}

// Launches that come later, of this library or of PyTorch beside it, ask for the last error.
TEST(CudaDevice, AnErrorThatWasReportedIsForgotten) {
  SIGNET_NEEDS_GPU();
  EXPECT_THROW(check_cuda(cudaSetDevice(1000), "cudaSetDevice"), Error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(CudaDevice, AnOldOneIsNamedWithWhatItLacks) {
  CudaDevice device;
  device.name = "Tesla T4", device.compute_major = 7, device.compute_minor = 5;
  EXPECT_EQ(too_old(device), "Tesla T4 has compute capability 7.5; 8.0 is the least");
  device.compute_major = 8, device.compute_minor = 0;
  EXPECT_EQ(too_old(device), "");
}

TEST(CudaDevice, FactsAreThere) {
  SIGNET_NEEDS_GPU();
  const CudaDevice& device = cuda_device();
  EXPECT_GE(device.compute_major, 8);
  EXPECT_GT(device.multiprocessors, 0);
  EXPECT_GE(device.shared_per_block, 64 * 1024);
}

TEST(CudaDevice, FactsAreThoseOfTheCurrentOne) {
  SIGNET_NEEDS_GPU();
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  for (int index = count; index-- > 0;) {
    check_cuda(cudaSetDevice(index), "cudaSetDevice");
    EXPECT_EQ(cuda_device().index, index);
  }
  const CudaDevice& first = cuda_device();
  EXPECT_EQ(&cuda_device(), &first) << "each is read once";
}

TEST(CudaDevice, FreshMemoryIsPoisoned) {
  SIGNET_NEEDS_GPU();
  const test::OnDevice<float> memory(5);
  for (float value : memory.values()) EXPECT_NE(value, value);
}

TEST(CudaDevice, MemoryOfTheProcessIsCounted) {
  SIGNET_NEEDS_GPU();
  const DeviceBuffer first(DeviceKind::kCuda, 1000);
  const GpuMemory before = gpu_memory();
  forget_gpu_peak();
  EXPECT_EQ(gpu_memory().peak, before.held);
  {
    DeviceBuffer second(DeviceKind::kCuda, 5 << 20);
    const DeviceBuffer moved = std::move(second);
    EXPECT_EQ(gpu_memory().held, before.held + (5 << 20));
  }
  const DeviceBuffer third(DeviceKind::kCuda, 7);
  EXPECT_EQ(gpu_memory().requests, before.requests + 2);
  EXPECT_EQ(gpu_memory().held, before.held + 7);
  EXPECT_EQ(gpu_memory().peak, before.held + (5 << 20));
}

}  // namespace signet
