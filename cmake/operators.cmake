# libsignet: the operators behind the C ABI (src/signet/capi/signet.h), for other programs to link or load. It needs
# fmt and threads alone, exports the functions of signet.h and nothing else, and with SIGNET_CUDA runs on GPUs as well.
file(GLOB signet_operator_sources CONFIGURE_DEPENDS src/signet/capi/*.cc src/signet/capi/library/*.cc
     src/signet/kernels/*/*.cc)
list(FILTER signet_operator_sources EXCLUDE REGEX "_reference\\.cc$|_cpu\\.cc$")
list(APPEND signet_operator_sources src/signet/base/isa.cc src/signet/base/thread_pool.cc)
if(SIGNET_CUDA)
  list(APPEND signet_operator_sources src/signet/base/text.cc src/signet/tensor/device.cc)
endif()

add_library(signet_operators SHARED ${signet_operator_sources})
foreach(isa IN LISTS signet_isas)
  target_sources(signet_operators PRIVATE $<TARGET_OBJECTS:signet_kernels_${isa}>)
endforeach()
target_link_libraries(signet_operators PRIVATE signet_flags Threads::Threads fmt::fmt-header-only)
target_include_directories(signet_operators INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_compile_options(signet_operators PRIVATE ${signet_fast})
target_compile_definitions(signet_operators PRIVATE SIGNET_VERSION="${PROJECT_VERSION}")
set_target_properties(signet_operators PROPERTIES OUTPUT_NAME signet CXX_VISIBILITY_PRESET hidden
                      VISIBILITY_INLINES_HIDDEN ON UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12
                      SOVERSION ${PROJECT_VERSION_MAJOR} VERSION ${PROJECT_VERSION}
                      PUBLIC_HEADER src/signet/capi/signet.h)
if(SIGNET_CUDA)
  target_sources(signet_operators PRIVATE
                 $<FILTER:$<TARGET_OBJECTS:signet_cuda>,INCLUDE,/src/signet/\(capi\|kernels\|tensor\)/>)
  set_target_properties(signet_operators PROPERTIES CUDA_ARCHITECTURES OFF)
  target_link_libraries(signet_operators PRIVATE CUDA::cudart_static CUDA::cublasLt)
  target_compile_definitions(signet_operators PRIVATE SIGNET_WITH_CUDA)
endif()
# Whatever else the objects bring (fmt, the C++ library's templates) stays inside.
target_link_options(signet_operators PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/src/signet/capi/library/exports
                    -Wl,-z,defs)

if(NOT SKBUILD)  # find_package(signet), then link signet::signet
  include(CMakePackageConfigHelpers)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/signet)
  set_target_properties(signet_operators PROPERTIES EXPORT_NAME signet)
  install(TARGETS signet_operators EXPORT signet LIBRARY INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/signet/capi)
  install(EXPORT signet NAMESPACE signet:: FILE signet-config.cmake DESTINATION ${package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/signet-config-version.cmake COMPATIBILITY ExactVersion)
  install(FILES ${PROJECT_BINARY_DIR}/signet-config-version.cmake DESTINATION ${package})
elseif(SKBUILD_PROJECT_NAME MATCHES "^signet[-_]cuda$")  # the plugin's wheel (python/cuda): this library alone
  set_target_properties(signet_operators PROPERTIES SOVERSION "" VERSION "" NO_SONAME ON)
  install(TARGETS signet_operators LIBRARY DESTINATION signet_cuda)
endif()
