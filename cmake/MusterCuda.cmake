# The CUDA plug-in libmuster_cuda.so: built where a CUDA toolkit and LibTorch's CUDA libraries are.
#   MUSTER_CUDA=AUTO   build it if both are found, else say what is missing and go on
#   MUSTER_CUDA=ON     fail if one is missing
#   MUSTER_CUDA=OFF    do not look
# Sets MUSTER_CUDA_PLUGIN_BUILT, and the targets muster::torch_cuda and muster::cudart.

set(MUSTER_CUDA AUTO CACHE STRING "Build the CUDA plug-in: AUTO, ON or OFF")
set_property(CACHE MUSTER_CUDA PROPERTY STRINGS AUTO ON OFF)
# Two generations of data centre GPUs; a build for others sets its own.
set(MUSTER_CUDA_ARCHITECTURES "80-real;90-real;90-virtual" CACHE STRING
  "GPU architectures that the plug-in's kernels are compiled for")
set(MUSTER_TORCH_CUDA_DIR "" CACHE PATH
  "Folder with libtorch_cuda.so and libc10_cuda.so; empty: LibTorch's own lib/")

# Trainer and plug-in share C++ types: the build is equal where the headers of their interface are.
file(GLOB _operators CONFIGURE_DEPENDS RELATIVE "${CMAKE_SOURCE_DIR}" "${CMAKE_SOURCE_DIR}/trainer/ops/*.h")
set(_interface "")
foreach(header
    common/base/status.h common/base/result.h common/base/clock.h common/base/unique_fd.h
    common/control_pipe/progress_page.h common/control_pipe/training_figures.h
    trainer/core/element_type.h trainer/plugin/plugin.h trainer/comm/transport.h
    trainer/comm/collectives.h trainer/comm/operation_limit.h ${_operators})
  file(SHA256 "${CMAKE_SOURCE_DIR}/${header}" _digest)
  string(APPEND _interface "${_digest}")
  set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    "${CMAKE_SOURCE_DIR}/${header}")
endforeach()
string(SHA256 _interface "${_interface}")
string(SUBSTRING "${_interface}" 0 12 _interface)
set(MUSTER_PLUGIN_BUILD "${PROJECT_VERSION}-${_interface}")

set(MUSTER_CUDA_PLUGIN_BUILT OFF)
if(MUSTER_CUDA STREQUAL "OFF")
  return()
endif()

# CMake looks for nvcc on PATH only; toolkits usually are where NVIDIA's packages put them.
include(CheckLanguage)
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(MUSTER_NVCC nvcc HINTS "$ENV{CUDA_HOME}/bin" "/usr/local/cuda/bin")
  if(MUSTER_NVCC)
    set(CMAKE_CUDA_COMPILER "${MUSTER_NVCC}")
  endif()
endif()
check_language(CUDA)

set(_torch_cuda_dir "${MUSTER_TORCH_CUDA_DIR}")
if(NOT _torch_cuda_dir)
  get_filename_component(_torch_cuda_dir "${MUSTER_TORCH_CPU_LIBRARY}" DIRECTORY)
endif()
find_library(MUSTER_TORCH_CUDA_LIBRARY torch_cuda PATHS "${_torch_cuda_dir}" NO_DEFAULT_PATH)
find_library(MUSTER_C10_CUDA_LIBRARY c10_cuda PATHS "${_torch_cuda_dir}" NO_DEFAULT_PATH)

set(_missing "")
if(NOT CMAKE_CUDA_COMPILER)
  string(APPEND _missing " nvcc of a CUDA toolkit;")
endif()
if(NOT MUSTER_TORCH_CUDA_LIBRARY OR NOT MUSTER_C10_CUDA_LIBRARY)
  string(APPEND _missing " libtorch_cuda.so and libc10_cuda.so in ${_torch_cuda_dir}"
    " (deploy/install-deps --cuda);")
endif()
if(_missing)
  if(MUSTER_CUDA STREQUAL "ON")
    message(FATAL_ERROR "MUSTER_CUDA=ON, but there is no${_missing}")
  endif()
  message(STATUS "The CUDA plug-in is not built: there is no${_missing}")
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES "${MUSTER_CUDA_ARCHITECTURES}")
# One runtime in the process: LibTorch's.
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
enable_language(CUDA)
set(CMAKE_CUDA_STANDARD 20)
# What CMake before 3.26 does not know of nvcc.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
find_package(CUDAToolkit REQUIRED)
find_path(MUSTER_NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})

# LibTorch registers its CUDA operators when the library is loaded: it must not be dropped as unused.
add_library(muster_torch_cuda INTERFACE)
target_link_libraries(muster_torch_cuda INTERFACE
  muster::torch -Wl,--no-as-needed ${MUSTER_TORCH_CUDA_LIBRARY} ${MUSTER_C10_CUDA_LIBRARY}
  -Wl,--as-needed)
add_library(muster::torch_cuda ALIAS muster_torch_cuda)
add_library(muster::cudart ALIAS CUDA::cudart)

# Before LibTorch's own folder, which may hold the same library without what it loads.
set(MUSTER_TORCH_CUDA_RPATH "${_torch_cuda_dir}")

set(MUSTER_CUDA_PLUGIN_BUILT ON)
message(STATUS "The CUDA plug-in is built with ${CMAKE_CUDA_COMPILER} for "
  "${MUSTER_CUDA_ARCHITECTURES}")
