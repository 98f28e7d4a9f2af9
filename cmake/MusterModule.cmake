# One call per library, program and test, so that every target gets the same treatment.

# muster_library(NAME SOURCES a.cc ... [DEPS public ...] [PRIVATE_DEPS ...] [TORCH] [PCH set])
# TORCH: the sources include ATen; they share its precompiled header.
# PCH: which precompiled header the sources share (cmake/MusterPrecompile.cmake): std, grpc, none. Default: std.
function(muster_library name)
  cmake_parse_arguments(ARG "TORCH" "PCH" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  _muster_target(${name} product "${ARG_TORCH}" "${ARG_PCH}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS} muster_warnings)
endfunction()

# muster_program(NAME SOURCES a.cc ... [DEPS ...] [TORCH] [PCH set])
function(muster_program name)
  cmake_parse_arguments(ARG "TORCH" "PCH" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  _muster_target(${name} product "${ARG_TORCH}" "${ARG_PCH}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} muster_warnings)
endfunction()

# muster_test(NAME SOURCES a_test.cc ... [DEPS ...] [LABEL unit] [TIMEOUT 60] [TORCH] [PCH set])
# A GoogleTest program and a ctest of its name with the label, which runs the cases in one process and reports
# each (tests/support/run_cases.py). TIMEOUT: seconds that one case may take.
function(muster_test name)
  if(NOT MUSTER_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH" "LABEL;TIMEOUT;PCH" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  _muster_target(${name} test "${ARG_TORCH}" "${ARG_PCH}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} muster_warnings muster_test_main)
  add_test(NAME ${name}
    COMMAND Python3::Interpreter "${CMAKE_SOURCE_DIR}/tests/support/run_cases.py"
      --case-timeout ${ARG_TIMEOUT} $<TARGET_FILE:${name}>)
  # Cases have their own limit; this one ends a run in which case after case hangs.
  set_tests_properties(${name} PROPERTIES
    LABELS ${ARG_LABEL} TIMEOUT 1200 ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endfunction()

# kind: product or test, which have their own flags and thereby their own precompiled headers.
function(_muster_target name kind torch set)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  # Programs would be compiled with -fPIE, for which a library's precompiled header does not count.
  target_compile_options(${name} PRIVATE -fPIC)
  if(kind STREQUAL "test")
    target_compile_options(${name} PRIVATE ${MUSTER_TEST_OPTIONS})
  endif()
  if(torch)
    target_link_libraries(${name} PRIVATE muster::torch)
    set(set aten)
  elseif(NOT set)
    set(set std)
  endif()
  if(NOT set STREQUAL "none")
    target_precompile_headers(${name} REUSE_FROM muster_${kind}_${set}_pch)
  endif()
endfunction()
