#include "trainer/plugin/plugin_loader.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

namespace muster {
namespace {

std::string LastLinkerError() {
  const char* const text = ::dlerror();
  return text == nullptr ? "unknown error" : text;
}

}  // namespace

std::string CudaPluginPath() {
  if (const char* const given = std::getenv("MUSTER_CUDA_PLUGIN");
      given != nullptr && given[0] != '\0') {
    return given;
  }
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = program.parent_path() / kCudaPluginLibrary;
  const auto in_lib = program.parent_path().parent_path() / "lib" / kCudaPluginLibrary;
  return !std::filesystem::exists(beside, error) && std::filesystem::exists(in_lib, error)
             ? in_lib.string()
             : beside.string();
}

Result<const CudaPlugin*> OpenCudaPlugin(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    return FailedPrecondition("there is no CUDA plug-in at " + path +
                              ": build Muster with -DMUSTER_CUDA=ON (docs/cuda.md), or let "
                              "MUSTER_CUDA_PLUGIN name it");
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return FailedPrecondition("the CUDA plug-in cannot be loaded: " + LastLinkerError() +
                              "; deploy/install-deps --cuda fetches the libraries of CUDA");
  }
  const auto entry = reinterpret_cast<CudaPluginEntry>(::dlsym(library, kCudaPluginEntry));
  if (entry == nullptr) {
    return FailedPrecondition(path + " is not a CUDA plug-in of Muster: " + LastLinkerError());
  }
  const CudaPlugin* const plugin = entry();
  if (std::string(plugin->build) != MUSTER_PLUGIN_BUILD) {
    return FailedPrecondition("the CUDA plug-in " + path + " is of build " + plugin->build +
                              ", the trainer of " + MUSTER_PLUGIN_BUILD +
                              ": build both from one tree");
  }
  return plugin;
}

Result<const CudaPlugin*> LoadCudaPlugin() {
  MUSTER_ASSIGN_OR_RETURN(const CudaPlugin* const plugin, OpenCudaPlugin(CudaPluginPath()));
  MUSTER_RETURN_IF_ERROR(plugin->device_count().status());
  return plugin;
}

}  // namespace muster
