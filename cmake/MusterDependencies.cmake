# What Muster builds on, each found where its own package installs it. docs/architecture.md says
# why each is there; deploy/install-deps installs them on Debian 12.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(CRYPTO REQUIRED IMPORTED_TARGET libcrypto)
pkg_check_modules(CURL REQUIRED IMPORTED_TARGET libcurl)

if(MUSTER_CONTROL)
  find_package(Protobuf REQUIRED)
  find_package(gRPC CONFIG REQUIRED)
  find_package(Boost 1.81 REQUIRED)
  find_package(spdlog REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(CLI11 CONFIG REQUIRED)
  find_package(SQLite3 REQUIRED)
  pkg_check_modules(SSL REQUIRED IMPORTED_TARGET libssl)
endif()

if(MUSTER_TRAINER)
  find_package(CLI11 CONFIG REQUIRED)
  include(MusterTorch)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
  find_package(ZLIB REQUIRED)
endif()

if(MUSTER_TESTS)
  find_package(GTest REQUIRED)
  find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
endif()
