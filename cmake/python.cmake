# signet._core, the Python module over libsignet. It has Python's stable ABI, so that one file serves 3.11 and newer. In
# the build tree the package lies in python/ (PYTHONPATH=build/release/python), in a wheel libsignet lies beside it.
find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  message(STATUS "Python 3.11 or newer with its headers not found: the Python package is left out")
  return()
endif()
file(GLOB signet_python_sources CONFIGURE_DEPENDS python/core/*.cc)
add_library(signet_python MODULE ${signet_python_sources})
target_include_directories(signet_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(signet_python PRIVATE signet_flags signet_operators ${CMAKE_DL_LIBS})
target_compile_definitions(signet_python PRIVATE Py_LIMITED_API=0x030B0000)
set_target_properties(signet_python PROPERTIES OUTPUT_NAME _core PREFIX "" SUFFIX ".abi3.so"
                      CXX_VISIBILITY_PRESET hidden INSTALL_RPATH "$ORIGIN"
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/signet)
file(GLOB_RECURSE signet_python_files CONFIGURE_DEPENDS python/signet/*.py)
add_custom_target(signet_python_files ALL DEPENDS signet_python ${signet_python_files}
                  COMMAND ${CMAKE_COMMAND} -E copy_directory ${PROJECT_SOURCE_DIR}/python/signet
                          ${CMAKE_BINARY_DIR}/python/signet)

if(SKBUILD)  # a wheel: it holds no symbolic links, so the library has one name
  set_target_properties(signet_operators PROPERTIES SOVERSION "" VERSION "" NO_SONAME ON)
  install(TARGETS signet_python LIBRARY DESTINATION signet)
  install(TARGETS signet_operators LIBRARY DESTINATION signet PUBLIC_HEADER DESTINATION signet/include/signet/capi)
  # The program, for automata, proofs and training, where everything that it needs is there.
  find_package(nlohmann_json QUIET)
  find_package(yaml-cpp QUIET)
  find_package(CLI11 QUIET)
  set(BLA_VENDOR OpenBLAS)
  find_package(BLAS QUIET)
  if(NOT nlohmann_json_FOUND OR NOT yaml-cpp_FOUND OR NOT CLI11_FOUND OR NOT BLAS_FOUND)
    message(STATUS "nlohmann-json, yaml-cpp, CLI11 or OpenBLAS not found: the wheel has the operators alone")
    set(SIGNET_OPERATORS_ONLY ON)
  endif()
endif()
