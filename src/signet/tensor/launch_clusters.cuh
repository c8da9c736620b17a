// launch() (launch.cuh) with clusters of blocks, which share a barrier (Hopper and newer).
#pragma once

#include "signet/tensor/launch.cuh"

namespace signet {

// `cluster` neighbouring blocks each; 1 is a launch without.
template <class... Parameters>
void launch_clusters(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block, unsigned cluster,
                     size_t shared_bytes, Cuda device, const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchAttribute attributes[2];
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = cluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes;
  config.stream = stream_of(device), config.attrs = attributes;
  config.numAttrs = cluster > 1 ? 2 : 1;
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

}  // namespace signet
