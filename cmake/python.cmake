# signet._core, the Python module over libsignet: stable ABI, so one file serves Python 3.11 and newer. In the build tree
# the package lies in python/ (PYTHONPATH=build/release/python), in a wheel libsignet lies beside the module.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
add_library(signet_python MODULE python/core.cc)
target_include_directories(signet_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
target_link_libraries(signet_python PRIVATE signet_flags signet_operators ${CMAKE_DL_LIBS})
target_compile_definitions(signet_python PRIVATE Py_LIMITED_API=0x030B0000)
set_target_properties(signet_python PROPERTIES OUTPUT_NAME _core PREFIX "" SUFFIX ".abi3.so"
                      CXX_VISIBILITY_PRESET hidden INSTALL_RPATH "$ORIGIN"
                      LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/python/signet)
add_custom_command(TARGET signet_python POST_BUILD COMMAND ${CMAKE_COMMAND} -E copy_directory
                   ${PROJECT_SOURCE_DIR}/python/signet ${CMAKE_BINARY_DIR}/python/signet)
if(SKBUILD)
  # A wheel cannot hold symbolic links: the library has one name.
  set_target_properties(signet_operators PROPERTIES NO_SONAME ON SOVERSION "" VERSION "")
  install(TARGETS signet_python LIBRARY DESTINATION signet)
  install(TARGETS signet_operators LIBRARY DESTINATION signet PUBLIC_HEADER DESTINATION signet/include)
endif()
