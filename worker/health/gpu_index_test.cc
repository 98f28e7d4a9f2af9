#include "worker/health/gpu_index.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

TEST(GpuIndex, CountsInTheOrderOfAddresses) {
  const TempDirForTest dir;
  for (const char* name : {"0000:af:00.0", "0000:3b:00.0", "0000:86:00.0"})
    std::filesystem::create_directory(dir / name);
  EXPECT_EQ(GpuIndex({}, "0000:3b:00", dir.path()), "0");
  EXPECT_EQ(GpuIndex({}, "0000:86:00", dir.path()), "1");
  EXPECT_EQ(GpuIndex({}, "0000:af:00.0", dir.path()), "2");
  EXPECT_EQ(GpuIndex({{.gpu_index = 7, .pci_address = "0000:86:00.0"}}, "0000:86:00", dir.path()),
            "7")
      << "as the management library counts in a container";
}

TEST(GpuIndex, AGpuThatIsNotThereKeepsItsAddress) {
  const TempDirForTest dir;
  EXPECT_EQ(GpuIndex({}, "0000:3b:00", dir.path()), "0000:3b:00");
  EXPECT_EQ(GpuIndex({}, "0000:3b:00", dir / "absent"), "0000:3b:00");
}

}  // namespace
}  // namespace muster::worker
