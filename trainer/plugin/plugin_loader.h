// Opens the CUDA plug-in (trainer/plugin/plugin.h), so that one trainer serves machines with and
// without CUDA.
//
// The library is the one that MUSTER_CUDA_PLUGIN names, else libmuster_cuda.so beside the program
// or, in a build folder, in ../lib. It stays open until the process ends. The trainer's thread.
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/plugin/plugin.h"

namespace muster {

// Where the plug-in is looked for.
std::string CudaPluginPath();

// The plug-in of this trainer; kFailedPrecondition says what is missing and what to do: no plug-in,
// a library that it needs, another build. Says nothing about drivers and GPUs.
Result<const CudaPlugin*> OpenCudaPlugin(const std::string& path);

// The same, with at least one GPU behind it.
Result<const CudaPlugin*> LoadCudaPlugin();

}  // namespace muster
