#include <gtest/gtest.h>

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

TEST(CudaDevice, FreshMemoryIsPoisoned) {
  SIGNET_NEEDS_GPU();
  const test::OnDevice<float> memory(5);
  for (float value : memory.values()) EXPECT_NE(value, value);
}

}  // namespace signet
