# One call per library, program and test, so that every target gets the same treatment.

# muster_library(NAME SOURCES a.cc ... [DEPS public ...] [PRIVATE_DEPS ...] [TORCH])
# TORCH: the sources include ATen; they share its precompiled header.
function(muster_library name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  _muster_target(${name} "${ARG_TORCH}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS} muster_warnings)
endfunction()

# muster_program(NAME SOURCES a.cc ... [DEPS ...] [TORCH])
function(muster_program name)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _muster_target(${name} "${ARG_TORCH}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} muster_warnings)
endfunction()

# muster_test(NAME SOURCES a_test.cc ... [DEPS ...] [LABEL unit] [TIMEOUT 60] [TORCH])
# A GoogleTest program and a ctest of its name with the label, which runs the cases in one process and reports
# each (tests/support/run_cases.py). TIMEOUT: seconds that one case may take.
function(muster_test name)
  if(NOT MUSTER_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH" "LABEL;TIMEOUT" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  _muster_target(${name} "${ARG_TORCH}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} muster_warnings muster_test_main)
  add_test(NAME ${name}
    COMMAND Python3::Interpreter "${CMAKE_SOURCE_DIR}/tests/support/run_cases.py"
      --case-timeout ${ARG_TIMEOUT} $<TARGET_FILE:${name}>)
  # Cases have their own limit; this one ends a run in which case after case hangs.
  set_tests_properties(${name} PROPERTIES
    LABELS ${ARG_LABEL} TIMEOUT 1200 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endfunction()

function(_muster_target name torch)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  if(torch)
    target_link_libraries(${name} PRIVATE muster::torch)
    # One translation unit compiles ATen for all (cmake/aten_pch.cc); the others reuse it.
    if(TARGET muster_aten_pch)
      target_precompile_headers(${name} REUSE_FROM muster_aten_pch)
      # Programs would be compiled with -fPIE, for which the header does not count.
      target_compile_options(${name} PRIVATE -fPIC)
    endif()
  endif()
endfunction()

if(MUSTER_TRAINER)
  add_library(muster_aten_pch STATIC "${CMAKE_CURRENT_LIST_DIR}/aten_pch.cc")
  target_link_libraries(muster_aten_pch PUBLIC muster::torch PRIVATE muster_warnings)
  target_precompile_headers(muster_aten_pch PRIVATE <ATen/ATen.h>)
endif()
