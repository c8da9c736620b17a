# Writes FILE, which defines signet::kCommit, when it would change: the short hash, with "+" where files differ from it.
cmake_minimum_required(VERSION 3.25)
find_program(GIT git)
if(NOT COMMIT AND GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --exclude=* --abbrev=12 --dirty=+
                  OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${FILE} CONTENT "namespace signet { extern const char* const kCommit; const char* const kCommit = \"@COMMIT@\"; }\n" @ONLY)
