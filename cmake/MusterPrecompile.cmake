# Precompiled headers: one for each set of headers and of flags, muster_KIND_SET_pch, which targets reuse
# (cmake/MusterModule.cmake). Only what other projects wrote is in them, so that no change to a header of ours
# compiles everything again; target header_check proves that headers of ours include what they use.

set(_std
  <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <condition_variable> <cstdint> <cstdio> <cstdlib>
  <cstring> <deque> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional>
  <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>
  <nlohmann/json.hpp>)
set(_test <gmock/gmock.h> <gtest/gtest.h>)
# Test sources run once or twice for each time they are compiled.
set(MUSTER_OPTIONS_test -O0 -g0)
# No program contains the paths that it was built at. ccache makes them relative, so these are mapped to the same; of
# two prefixes that match the last counts.
file(RELATIVE_PATH _source "${CMAKE_BINARY_DIR}" "${CMAKE_SOURCE_DIR}/")
set(MUSTER_OPTIONS_product
  "-fmacro-prefix-map=${_source}=" "-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=" "-fmacro-prefix-map=${CMAKE_BINARY_DIR}/=")
if(MUSTER_TRAINER)
  get_filename_component(_torch "${MUSTER_TORCH_INCLUDE_DIR}" DIRECTORY)
  list(APPEND MUSTER_OPTIONS_product "-fmacro-prefix-map=${_torch}/=torch/")
endif()

# _muster_pch(NAME HEADERS ... DEPS ... [OPTIONS ...])
function(_muster_pch name)
  cmake_parse_arguments(ARG "" "" "HEADERS;DEPS;OPTIONS" ${ARGN})
  # EXCLUDE_FROM_ALL: built where a target of the build reuses it.
  add_library(${name} STATIC EXCLUDE_FROM_ALL "${CMAKE_SOURCE_DIR}/cmake/empty.cc")
  target_compile_options(${name} PRIVATE -fPIC ${ARG_OPTIONS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} nlohmann_json::nlohmann_json muster_warnings)
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
endfunction()

set(_kinds product)
if(MUSTER_TESTS)
  list(APPEND _kinds test)
endif()
foreach(_kind IN LISTS _kinds)
  set(_headers ${_std})
  set(_deps)
  set(_options ${MUSTER_OPTIONS_${_kind}})
  if(_kind STREQUAL "test")
    list(APPEND _headers ${_test})
    set(_deps GTest::gmock GTest::gtest)
  endif()
  _muster_pch(muster_${_kind}_std_pch HEADERS ${_headers} DEPS ${_deps} OPTIONS ${_options})
  if(MUSTER_CONTROL)
    _muster_pch(muster_${_kind}_grpc_pch
      HEADERS ${_headers} <grpcpp/grpcpp.h> DEPS ${_deps} gRPC::grpc++ OPTIONS ${_options})
  endif()
  if(MUSTER_TRAINER)
    _muster_pch(muster_${_kind}_aten_pch
      HEADERS ${_headers} <ATen/ATen.h> DEPS ${_deps} muster::torch OPTIONS ${_options})
  endif()
endforeach()
