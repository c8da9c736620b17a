# The CUDA backend: every src/signet/**/*.cu joins signet_core, and SIGNET_WITH_CUDA tells the rest it is there.
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

# Programs that check an operator against fp64 on the GPU and time it, built by name. They share the tests' helpers.
find_package(GTest QUIET)
file(GLOB signet_cuda_bench_programs CONFIGURE_DEPENDS bench/kernels/*_cuda_bench.cc)
foreach(source IN LISTS signet_cuda_bench_programs)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE signet_core $<TARGET_NAME_IF_EXISTS:GTest::gtest>)
endforeach()

file(GLOB_RECURSE signet_cuda_sources CONFIGURE_DEPENDS src/signet/*.cu)
add_library(signet_cuda OBJECT ${signet_cuda_sources})
set_target_properties(signet_cuda PROPERTIES CUDA_STANDARD 20 LINKER_LANGUAGE CXX)
target_compile_options(signet_cuda PRIVATE ${SIGNET_CUDA_GENCODE} --expt-relaxed-constexpr -lineinfo
                       -Xcompiler=-Wall -diag-suppress=20012)
target_link_libraries(signet_cuda PRIVATE signet_flags fmt::fmt CUDA::cudart_static)
# fmt 9 turns constexpr off under nvcc, and its format strings then fail to compile in C++20.
target_compile_definitions(signet_cuda PRIVATE SIGNET_WITH_CUDA FMT_USE_CONSTEXPR=1)

target_sources(signet_core PRIVATE $<TARGET_OBJECTS:signet_cuda>)
set_target_properties(signet_core PROPERTIES CUDA_ARCHITECTURES OFF)
target_link_libraries(signet_core PUBLIC CUDA::cudart_static CUDA::cublasLt)
target_compile_definitions(signet_core PUBLIC SIGNET_WITH_CUDA)

# Each checks its operator against fp64 on the GPU and times it: cmake --build ... --target <name>
file(GLOB signet_cuda_benches CONFIGURE_DEPENDS bench/kernels/*_cuda_bench.cu)
foreach(source IN LISTS signet_cuda_benches)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  set_target_properties(${name} PROPERTIES CUDA_STANDARD 20)
  target_compile_options(${name} PRIVATE ${SIGNET_CUDA_GENCODE} --expt-relaxed-constexpr)
  target_compile_definitions(${name} PRIVATE FMT_USE_CONSTEXPR=1)
  target_link_libraries(${name} PRIVATE signet_core)
endforeach()

# What a machine without a GPU can check (make cuda-check): every file of the backend compiles, tests included, and
# nothing is linked. Code for a virtual architecture alone leaves out the assembler, most of the time.
set(signet_cuda_check)
file(GLOB_RECURSE candidates CONFIGURE_DEPENDS src/signet/*.cc)
foreach(source IN LISTS candidates)
  file(STRINGS ${source} mentions REGEX "^#ifdef SIGNET_WITH_CUDA" LIMIT_COUNT 1)
  if(mentions)
    list(APPEND signet_cuda_check ${source})
  endif()
endforeach()
if(GTest_FOUND)
  file(GLOB_RECURSE tests CONFIGURE_DEPENDS tests/*_cuda_test.cc)
  list(APPEND signet_cuda_check ${tests})
endif()
add_library(cuda_check OBJECT EXCLUDE_FROM_ALL ${signet_cuda_check})
target_include_directories(cuda_check PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_compile_options(cuda_check PRIVATE -fsyntax-only)
target_compile_definitions(cuda_check PRIVATE SIGNET_WITH_CUDA SIGNET_VERSION="${PROJECT_VERSION}"
                           SIGNET_BUILD_TYPE="${CMAKE_BUILD_TYPE}")
target_link_libraries(cuda_check PRIVATE signet_flags fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11
                      CUDA::cudart_static $<TARGET_NAME_IF_EXISTS:GTest::gtest>)
