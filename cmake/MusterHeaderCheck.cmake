# Target header_check, which is built on request: compiles each header alone, so that each is proved to include what it
# uses. The sources' own compilation cannot prove that, since a precompiled header stands before it. Objects instead of
# -fsyntax-only, so that ccache keeps what was proved.

# _muster_header_check(SET DEPS ... HEADERS a.h ...)
# SET: the precompiled header that stands before these headers, since what they stand on would take most of the time. So
# it is proved that a header includes what is ours, and what of others is in no such set.
function(_muster_header_check set)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS" ${ARGN})
  set(sources)
  foreach(header IN LISTS ARG_HEADERS)
    set(source "${CMAKE_BINARY_DIR}/header_check/${header}.cc")
    file(CONFIGURE OUTPUT "${source}" CONTENT "#include \"${header}\"\n")
    list(APPEND sources "${source}")
  endforeach()
  set(name header_check_${set})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${sources})
  _muster_target(${name} test FALSE ${set})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} muster_warnings)
  # Helpers of tests in a header are unused where no test uses them. The macros are paths that tests' targets define.
  target_compile_options(${name} PRIVATE -Wno-unused-function)
  target_compile_definitions(${name} PRIVATE
    MUSTER_GUARDIAN_BINARY="" MUSTER_RANK_FOR_TEST="" MUSTER_TEST_NVML="" MUSTER_WORKER_BINARY="")
  add_dependencies(header_check ${name})
endfunction()

# Of all modules that are built, after all calls of muster_library.
function(muster_header_check)
  add_custom_target(header_check)
  set(deps nlohmann_json::nlohmann_json yaml-cpp PkgConfig::XXHASH PkgConfig::CRYPTO GTest::gmock)
  set(folders common)
  if(MUSTER_CONTROL)
    list(APPEND folders coordinator worker cli tests/support tests/simulation)
    list(APPEND deps Boost::headers spdlog::spdlog prometheus-cpp::core CLI11::CLI11 SQLite::SQLite3 PkgConfig::SSL)
  endif()
  if(MUSTER_TRAINER)
    list(APPEND folders trainer tests/parity)
    list(APPEND deps CLI11::CLI11 PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::CURL ZLIB::ZLIB)
  endif()
  set(headers)
  foreach(folder IN LISTS folders)
    file(GLOB_RECURSE found RELATIVE "${CMAKE_SOURCE_DIR}" "${CMAKE_SOURCE_DIR}/${folder}/*.h")
    list(APPEND headers ${found})
  endforeach()
  list(FILTER headers EXCLUDE REGEX "^trainer/ops/cuda/")  # it stands on a CUDA toolkit
  if(NOT MUSTER_CONTROL)
    list(FILTER headers EXCLUDE REGEX "^common/(rpc|runtime|security|telemetry)/")
  endif()
  foreach(kind
      "aten ^(trainer/(fsdp|model|ops|plugin|report|train|verbs)|tests/parity)/"
      "grpc ^(cli|common/rpc|coordinator/service|coordinator/store/etcd|worker/allocation|worker/service|tests)/"
      "std .*")
    string(REGEX MATCH "^([a-z]+) (.*)$" kind "${kind}")
    set(set ${CMAKE_MATCH_1})
    set(chosen ${headers})
    list(FILTER chosen INCLUDE REGEX "${CMAKE_MATCH_2}")
    list(FILTER headers EXCLUDE REGEX "${CMAKE_MATCH_2}")
    set(more)
    if(set STREQUAL "aten")
      set(more muster::torch)
    elseif(MUSTER_CONTROL)
      set(more muster_proto muster_etcd_proto)
    endif()
    # A header with a test is left to it: lint has the test include it first, behind the same precompiled header. That
    # proves it in preset dev, whose tests are in no unity. To compile these here would take a third more.
    if(set MATCHES "aten|grpc")
      foreach(header IN LISTS chosen)
        string(REGEX REPLACE "\\.h$" "_test.cc" test "${header}")
        if(EXISTS "${CMAKE_SOURCE_DIR}/${test}")
          list(REMOVE_ITEM chosen "${header}")
        endif()
      endforeach()
    endif()
    if(chosen)
      _muster_header_check(${set} HEADERS ${chosen} DEPS ${deps} ${more})
    endif()
  endforeach()
endfunction()
