// A test's control of the substitute of NVIDIA's library (nvml.cc). Tests only.
#pragma once

#include <dlfcn.h>

#include <cstdlib>

namespace muster::worker {

class NvmlControlForTest {
 public:
  // Loaded as long as this lives, so that its state is that which a NvmlWatch finds.
  NvmlControlForTest() : library_(::dlopen(MUSTER_TEST_NVML, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) std::abort();
  }
  ~NvmlControlForTest() { ::dlclose(library_); }

  const char* path() const { return MUSTER_TEST_NVML; }
  bool Xid(unsigned gpu, unsigned long long xid) {
    return Find<bool (*)(unsigned, unsigned long long)>("MusterTestXid")(gpu, xid);
  }
  void RecoveryAction(unsigned gpu, unsigned action) {
    Find<void (*)(unsigned, unsigned)>("MusterTestRecoveryAction")(gpu, action);
  }
  void Answer(unsigned gpu, int code) {
    Find<void (*)(unsigned, int)>("MusterTestAnswer")(gpu, code);
  }

 private:
  template <typename Function>
  Function Find(const char* name) {
    void* function = ::dlsym(library_, name);
    if (function == nullptr) std::abort();
    return reinterpret_cast<Function>(function);
  }
  void* library_;
};

}  // namespace muster::worker
