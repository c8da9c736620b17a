# The CUDA backend in signet_core, its benchmarks, and what a machine without a GPU can check.
target_sources(signet_core PRIVATE $<TARGET_OBJECTS:signet_cuda>)
set_target_properties(signet_core PROPERTIES CUDA_ARCHITECTURES OFF)
target_link_libraries(signet_core PUBLIC CUDA::cudart_static CUDA::cublasLt)
target_compile_definitions(signet_core PUBLIC SIGNET_WITH_CUDA)

# Programs that check an operator against fp64 on the GPU and time it, built by name. They share the tests' helpers.
find_package(GTest QUIET)
file(GLOB signet_cuda_bench_programs CONFIGURE_DEPENDS bench/kernels/*_cuda_bench.cc)
foreach(source IN LISTS signet_cuda_bench_programs)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE signet_core $<TARGET_NAME_IF_EXISTS:GTest::gtest>)
endforeach()

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
                           SIGNET_BUILD_TYPE="${CMAKE_BUILD_TYPE}" SIGNET_BINARY="$<TARGET_FILE:signet>"
                           SIGNET_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(cuda_check PRIVATE signet_flags fmt::fmt nlohmann_json::nlohmann_json CLI11::CLI11
                      CUDA::cudart_static $<TARGET_NAME_IF_EXISTS:GTest::gtest>)
