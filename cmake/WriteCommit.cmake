# cmake -DSOURCE=DIR -DGIVEN=TEXT -DOUT=FILE -P WriteCommit.cmake
# Writes a header with the commit of SOURCE, or GIVEN; leaves the file alone where it says so already, so
# that nothing is compiled again.
cmake_minimum_required(VERSION 3.24)
set(commit "${GIVEN}")
if(NOT commit AND EXISTS "${SOURCE}/.git")
  execute_process(
    COMMAND git -c "safe.directory=${SOURCE}" -C "${SOURCE}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  endif()
endif()
string(REGEX REPLACE "[^0-9A-Za-z._+-]" "" commit "${commit}")
file(CONFIGURE OUTPUT "${OUT}" CONTENT
"// Written at each build by cmake/WriteCommit.cmake.
#pragma once

namespace muster {
inline constexpr char kCommit[] = \"${commit}\";
}
")
