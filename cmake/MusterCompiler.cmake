# Language level, warnings, sanitizers, ccache and output folders for every target of Muster.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
# -O2 rather than -O3: the hot loops are in LibTorch, and compile time on two cores is a budget.
set(CMAKE_CXX_FLAGS_RELEASE "-O2")

add_library(muster_warnings INTERFACE)
target_compile_options(muster_warnings INTERFACE
  -Wall -Wextra -Werror -Wno-missing-field-initializers)

# Everywhere, since a precompiled header counts for the same macros only, and this flag defines one.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-pthread>)

# GCC collects its garbage whenever its heap has grown by 128 MB, a tenth of the time that it compiles. This takes
# 0.1 GB more of memory per compiler.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=600000>)

# The system's linker takes seconds for a program with gRPC.
find_program(MUSTER_MOLD mold)
if(MUSTER_MOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=mold>)
endif()

# Clang is there for fuzzing alone. GCC's warnings are the rule, and Clang does not know all of them.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-unknown-warning-option>)
  target_compile_options(muster_warnings INTERFACE -Wno-everything)
endif()

if(MUSTER_SANITIZE)
  # With instrumented code GCC 12 sees uninitialised values where there are none (Boost.Beast).
  target_compile_options(muster_warnings INTERFACE -Wno-maybe-uninitialized)
  if(MUSTER_SANITIZE MATCHES "thread")
    # Boost.Asio has fences beside its locks; ThreadSanitizer sees the locks alone.
    target_compile_options(muster_warnings INTERFACE -Wno-tsan)
    # In each program, since workers and guardians start theirs without this one's environment.
    set(MUSTER_PROGRAM_SOURCES "${CMAKE_SOURCE_DIR}/tests/support/tsan_suppressions.cc")
  endif()
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The base directory lets a second clone or build folder hit; the sloppiness is what ccache
  # needs to cache compilations that use a precompiled header. On a miss ccache takes the list of files that were read
  # from the compiler (DEPEND), and preprocesses nothing again.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env
    CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CCACHE_PROGRAM})
endif()
