# The CUDA backend: every src/signet/**/*.cu; SIGNET_WITH_CUDA tells the rest it is there.
# Machine code for Hopper (sm_90a: wgmma, bulk copies) and Ampere, plus PTX for whatever comes after; cudart is
# static, so the program starts and says "no GPU" on a machine without a driver.
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "SIGNET_CUDA=ON needs nvcc: put it on the PATH or set CUDACXX, or build without CUDA")
  endif()
endif()
set(CMAKE_CUDA_ARCHITECTURES OFF)  # named below: CMake's list cannot say sm_90a without its PTX
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it for every nvcc
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit 12.4 REQUIRED)

set(SIGNET_CUDA_GENCODE
    "-gencode=arch=compute_90a,code=sm_90a;-gencode=arch=compute_80,code=[sm_80,compute_80]"
    CACHE STRING "nvcc -gencode options; one target makes a developer's build faster")

file(GLOB_RECURSE signet_cuda_sources CONFIGURE_DEPENDS src/signet/*.cu)
add_library(signet_cuda OBJECT ${signet_cuda_sources})
set_target_properties(signet_cuda PROPERTIES CUDA_STANDARD 20 LINKER_LANGUAGE CXX POSITION_INDEPENDENT_CODE ON)
target_compile_options(signet_cuda PRIVATE ${SIGNET_CUDA_GENCODE} --expt-relaxed-constexpr -lineinfo
                       -Xcompiler=-Wall -diag-suppress=20012)
target_link_libraries(signet_cuda PRIVATE signet_flags fmt::fmt CUDA::cudart_static)
# fmt 9 turns constexpr off under nvcc, and its format strings then fail to compile in C++20.
target_compile_definitions(signet_cuda PRIVATE SIGNET_WITH_CUDA FMT_USE_CONSTEXPR=1)
