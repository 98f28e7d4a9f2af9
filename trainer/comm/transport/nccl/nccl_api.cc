#include "trainer/comm/transport/nccl/nccl_api.h"

#include <dlfcn.h>

namespace muster {
namespace {

// Binds one entry of the table; remembers the first name that is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <typename R, typename... Args>
  void Bind(const char* name, std::function<R(Args...)>* entry) {
    void* const symbol = ::dlsym(library_, name);
    if (symbol == nullptr) {
      if (missing_.empty()) missing_ = name;
      return;
    }
    *entry = reinterpret_cast<R (*)(Args...)>(symbol);
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const library_;
  std::string missing_;
};

}  // namespace

Result<NcclApi> LoadNccl(const std::string& library) {
  void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const reason = ::dlerror();
    return FailedPrecondition("NCCL cannot be loaded: " +
                              std::string(reason == nullptr ? library : reason));
  }
  Symbols symbols(handle);
  NcclApi api;
  symbols.Bind("ncclGetVersion", &api.GetVersion);
  symbols.Bind("ncclGetUniqueId", &api.GetUniqueId);
  symbols.Bind("ncclCommInitRankConfig", &api.CommInitRankConfig);
  symbols.Bind("ncclCommFinalize", &api.CommFinalize);
  symbols.Bind("ncclCommDestroy", &api.CommDestroy);
  symbols.Bind("ncclCommAbort", &api.CommAbort);
  symbols.Bind("ncclCommGetAsyncError", &api.CommGetAsyncError);
  symbols.Bind("ncclGroupStart", &api.GroupStart);
  symbols.Bind("ncclGroupEnd", &api.GroupEnd);
  symbols.Bind("ncclAllGather", &api.AllGather);
  symbols.Bind("ncclReduceScatter", &api.ReduceScatter);
  symbols.Bind("ncclAllReduce", &api.AllReduce);
  symbols.Bind("ncclBroadcast", &api.Broadcast);
  symbols.Bind("ncclSend", &api.Send);
  symbols.Bind("ncclRecv", &api.Recv);
  symbols.Bind("ncclGetErrorString", &api.GetErrorString);
  symbols.Bind("ncclGetLastError", &api.GetLastError);
  if (!symbols.missing().empty()) {
    ::dlclose(handle);
    return FailedPrecondition(library + " has no function " + symbols.missing() +
                              ": NCCL 2.14 or newer is needed");
  }
  return api;
}

std::string NcclVersionText(int version) {
  const int major = version / 10000;
  return std::to_string(major) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

bool NcclCanFormAgain(int version) { return version < 22803 || version > 22808; }

}  // namespace muster
