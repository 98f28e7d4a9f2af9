# One call per library, program and test, so that every target gets the same treatment.

# muster_library(NAME SOURCES a.cc ... [DEPS public ...] [PRIVATE_DEPS ...] [TORCH] [PCH set] [ALONE c.cc ...])
# TORCH: the sources include ATen; they share its precompiled header.
# PCH: which precompiled header the sources share (cmake/MusterPrecompile.cmake): std, grpc, none. Default: std.
# ALONE: sources that are no part of a unity build, since names of theirs clash with another's.
function(muster_library name)
  cmake_parse_arguments(ARG "TORCH" "PCH" "SOURCES;DEPS;PRIVATE_DEPS;ALONE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  _muster_target(${name} product "${ARG_TORCH}" "${ARG_PCH}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS} muster_warnings)
endfunction()

# What `cmake --install` installs, and packages contain.
add_custom_target(installed)

# muster_program(NAME SOURCES a.cc ... [DEPS ...] [TORCH] [PCH set] [COMPONENT component])
# COMPONENT: the part of an installation that the program belongs to: cli, coordinator, worker or trainer.
function(muster_program name)
  cmake_parse_arguments(ARG "TORCH" "PCH;COMPONENT" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES} ${MUSTER_PROGRAM_SOURCES})
  _muster_target(${name} product "${ARG_TORCH}" "${ARG_PCH}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} muster_warnings)
  if(ARG_COMPONENT)
    install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${ARG_COMPONENT})
    add_dependencies(installed ${name})
  endif()
endfunction()

# muster_shared_library(NAME): what the trainer opens at run time, beside it in the build. What the program or
# LibTorch has as well stays inside.
function(muster_shared_library name)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL)
  # LibTorch is that of the Python environment that Muster is installed in: bin/ and lib/ are two folders below its
  # site-packages.
  set_target_properties(${name} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}" INSTALL_RPATH "$ORIGIN/../../torch/lib")
  install(TARGETS ${name} LIBRARY DESTINATION lib COMPONENT trainer)
  add_dependencies(installed ${name})
endfunction()

# muster_test(NAME SOURCES a_test.cc ... [DEPS ...] [ALONE c_test.cc ...] [LABEL unit] [TIMEOUT 60] [TORCH] [PCH set]
#             [GROUP program])
# GoogleTest cases of one module, compiled as the object library NAME. Modules of a group are one program: GROUP,
# or the variable MUSTER_TEST_GROUP of the folder, or else NAME_program. LABEL: one label. TIMEOUT: seconds that
# one case may take.
function(muster_test name)
  if(NOT MUSTER_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "TORCH" "LABEL;TIMEOUT;PCH;GROUP" "SOURCES;DEPS;ALONE" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  if(NOT ARG_GROUP)
    set(ARG_GROUP ${MUSTER_TEST_GROUP})
  endif()
  if(NOT ARG_GROUP)
    set(ARG_GROUP ${name}_program)
  endif()
  add_library(${name} OBJECT ${ARG_SOURCES})
  set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  _muster_target(${name} test "${ARG_TORCH}" "${ARG_PCH}")
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} muster_test_main PRIVATE muster_warnings)
  set_property(GLOBAL APPEND PROPERTY MUSTER_TEST_GROUPS ${ARG_GROUP})
  set_property(GLOBAL APPEND PROPERTY MUSTER_TEST_MODULES_${ARG_GROUP} ${name})
  set_property(GLOBAL APPEND PROPERTY MUSTER_TEST_LABELS_${ARG_GROUP} ${ARG_LABEL})
  set_property(GLOBAL APPEND PROPERTY MUSTER_TEST_TIMEOUTS_${ARG_GROUP} ${ARG_TIMEOUT})
endfunction()

# muster_test_group(NAME [LABELS more ...] [SHARDS N]): what else is true of a group. SHARDS: its cases run in N
# processes, each a ctest of its own, where one would take long enough to be the last to end.
function(muster_test_group name)
  cmake_parse_arguments(ARG "" "SHARDS" "LABELS" ${ARGN})
  set_property(GLOBAL APPEND PROPERTY MUSTER_TEST_LABELS_${name} ${ARG_LABELS})
  set_property(GLOBAL PROPERTY MUSTER_TEST_SHARDS_${name} ${ARG_SHARDS})
endfunction()

# Once, after all calls of muster_test: the program and the ctest of each group, and of each label LABEL the target
# LABEL_programs, which builds its programs. A ctest runs the cases of its program in one process and reports each
# (tests/support/run_cases.py).
function(muster_test_programs)
  get_property(groups GLOBAL PROPERTY MUSTER_TEST_GROUPS)
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    foreach(what MODULES LABELS TIMEOUTS SHARDS)
      get_property(${what} GLOBAL PROPERTY MUSTER_TEST_${what}_${group})
    endforeach()
    list(REMOVE_DUPLICATES LABELS)
    list(SORT TIMEOUTS COMPARE NATURAL ORDER DESCENDING)
    list(GET TIMEOUTS 0 timeout)
    add_executable(${group} "${CMAKE_SOURCE_DIR}/cmake/empty.cc" ${MUSTER_PROGRAM_SOURCES})
    target_link_libraries(${group} PRIVATE ${MODULES})
    # What the modules' cases open or start; linking their objects does not have it built.
    foreach(module IN LISTS MODULES)
      get_target_property(needs ${module} MANUALLY_ADDED_DEPENDENCIES)
      if(needs)
        add_dependencies(${group} ${needs})
      endif()
    endforeach()
    set_target_properties(${group} PROPERTIES
      UNITY_BUILD OFF RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
    foreach(label IN LISTS LABELS)
      if(NOT TARGET ${label}_programs)
        add_custom_target(${label}_programs)
      endif()
      add_dependencies(${label}_programs ${group})
    endforeach()
    if(NOT SHARDS)
      set(SHARDS 1)
    endif()
    set(environment "PYTHONDONTWRITEBYTECODE=1")
    set(most_seconds 1200)
    if(MUSTER_SANITIZE)  # instrumented code takes several times as long
      math(EXPR timeout "5 * ${timeout}")
      math(EXPR most_seconds "5 * ${most_seconds}")
    endif()
    foreach(shard RANGE 1 ${SHARDS})
      set(test ${group})
      if(SHARDS GREATER 1)
        set(test ${group}_${shard}_of_${SHARDS})
      endif()
      add_test(NAME ${test}
        COMMAND Python3::Interpreter "${CMAKE_SOURCE_DIR}/tests/support/run_cases.py"
          --case-timeout ${timeout} --shard ${shard}/${SHARDS} $<TARGET_FILE:${group}>)
      # Cases have their own limit; this one ends a run in which case after case hangs.
      set_tests_properties(${test} PROPERTIES
        LABELS "${LABELS}" TIMEOUT ${most_seconds} ENVIRONMENT "${environment}")
    endforeach()
  endforeach()
endfunction()

# kind: product or test, which have their own flags and thereby their own precompiled headers.
function(_muster_target name kind torch set)
  target_include_directories(${name} PRIVATE "${CMAKE_SOURCE_DIR}")
  # Programs would be compiled with -fPIE, for which a library's precompiled header does not count.
  target_compile_options(${name} PRIVATE -fPIC)
  target_compile_options(${name} PRIVATE ${MUSTER_OPTIONS_${kind}})
  if(kind STREQUAL "test")  # a change of one test compiles its batch
    set_target_properties(${name} PROPERTIES UNITY_BUILD_BATCH_SIZE 8)
  endif()
  if(CMAKE_UNITY_BUILD)
    # With more inlined, GCC 12 takes moves of short strings for writes out of bounds; and it takes the sources of a
    # batch for headers, where a class may not have members of an anonymous type. Preset dev keeps these warnings.
    target_compile_options(${name} PRIVATE -Wno-array-bounds -Wno-maybe-uninitialized -Wno-restrict
      -Wno-stringop-overflow -Wno-stringop-overread -Wno-subobject-linkage)
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
