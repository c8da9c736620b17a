# make install: the program, its manual page and shell completions, besides the library (cmake/operators.cmake).
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # what is installed is built by name, without the tests

install(TARGETS signet RUNTIME)
# Made by the program itself, from what --help shows.
foreach(made "help --man;signet.1;${CMAKE_INSTALL_MANDIR}/man1"
             "completion bash;signet;${CMAKE_INSTALL_DATADIR}/bash-completion/completions"
             "completion zsh;_signet;${CMAKE_INSTALL_DATADIR}/zsh/site-functions"
             "completion fish;signet.fish;${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d")
  list(GET made 0 words)
  list(GET made 1 name)
  list(GET made 2 directory)
  separate_arguments(words)
  list(GET words 0 verb)
  list(GET words 1 argument)
  set(file ${PROJECT_BINARY_DIR}/install/${directory}/${name})
  install(CODE "file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/install/${directory}\")
execute_process(COMMAND \"$<TARGET_FILE:signet>\" ${verb} ${argument} OUTPUT_FILE \"${file}\" COMMAND_ERROR_IS_FATAL ANY)")
  install(FILES ${file} DESTINATION ${directory})
endforeach()

# make deb
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME signet)
set(CPACK_PACKAGE_CONTACT "the authors of signet <signet@example.org>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "linear recurrent networks that track state: train, prove, compile, measure")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS libopenblas0)  # opened at run time (tensor/openblas.h), so shlibdeps cannot see it
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
include(CPack)
