# Target muster::torch: headers, libtorch_cpu and libc10 of LibTorch 2.11 (from the Python wheel).
#
# find_package(Torch) is not used: with the wheel it demands a whole CUDA toolkit even for a
# program that only touches the CPU.

if(MUSTER_LIBTORCH_DIR)
  set(_torch_root "${MUSTER_LIBTORCH_DIR}")
else()
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(_cache "$ENV{XDG_CACHE_HOME}")
  else()
    set(_cache "$ENV{HOME}/.cache")
  endif()
  set(_torch_root "${_cache}/muster/libtorch-2.11.0/torch")
endif()

find_library(MUSTER_TORCH_CPU_LIBRARY torch_cpu PATHS "${_torch_root}/lib" NO_DEFAULT_PATH)
find_library(MUSTER_C10_LIBRARY c10 PATHS "${_torch_root}/lib" NO_DEFAULT_PATH)
find_path(MUSTER_TORCH_INCLUDE_DIR ATen/ATen.h PATHS "${_torch_root}/include" NO_DEFAULT_PATH)
if(NOT MUSTER_TORCH_CPU_LIBRARY OR NOT MUSTER_C10_LIBRARY OR NOT MUSTER_TORCH_INCLUDE_DIR)
  message(FATAL_ERROR
    "LibTorch was not found under ${_torch_root}. Run deploy/install-deps, point "
    "-DMUSTER_LIBTORCH_DIR at a folder with its include/ and lib/, or build the control plane "
    "alone with -DMUSTER_TRAINER=OFF.")
endif()

add_library(muster_torch INTERFACE)
target_include_directories(muster_torch SYSTEM INTERFACE
  "${MUSTER_TORCH_INCLUDE_DIR}" "${MUSTER_TORCH_INCLUDE_DIR}/torch/csrc/api/include")
# libtorch_cpu needs libcudart and libcupti at run time even without a GPU; the wheel's own run
# path finds them, so the linker need not.
target_link_options(muster_torch INTERFACE -Wl,--allow-shlib-undefined)
target_link_libraries(muster_torch INTERFACE
  ${MUSTER_TORCH_CPU_LIBRARY} ${MUSTER_C10_LIBRARY} Threads::Threads)
add_library(muster::torch ALIAS muster_torch)
