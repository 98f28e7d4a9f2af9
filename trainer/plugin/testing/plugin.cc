// A plug-in without CUDA, of which the loader's tests build several kinds.
#include "trainer/plugin/plugin.h"

#if defined(MUSTER_TEST_UNLINKED)
extern "C" void a_function_that_nobody_has();
__attribute__((used)) void (*unlinked)() = &a_function_that_nobody_has;
#endif

#if !defined(MUSTER_TEST_WITHOUT_ENTRY)
extern "C" __attribute__((visibility("default"))) const muster::CudaPlugin*
muster_cuda_plugin_v1() {
  static const muster::CudaPlugin plugin = {
      .build = MUSTER_PLUGIN_BUILD,
      .versions =
          [] {
            return muster::CudaVersions{"test", "13.0", "", "2.28.9"};
          },
      .device_count = []() -> muster::Result<int> {
        return muster::FailedPrecondition("no driver of NVIDIA is installed");
      },
  };
  return &plugin;
}
#endif
