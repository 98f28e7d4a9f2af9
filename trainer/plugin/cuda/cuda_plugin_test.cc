// The plug-in and the NCCL of this machine, as far as they go without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trainer/comm/communicator.h"
#include "trainer/comm/transport/nccl/nccl_api.h"
#include "trainer/plugin/plugin_loader.h"

namespace muster {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class CudaPluginOfThisBuild : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto opened = OpenCudaPlugin(MUSTER_TEST_CUDA_PLUGIN);
    // Built, but the libraries of CUDA are not on this machine (deploy/install-deps --cuda).
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    plugin_ = *opened;
  }
  const CudaPlugin* plugin_ = nullptr;
};

TEST_F(CudaPluginOfThisBuild, TellsItsVersions) {
  const CudaVersions versions = plugin_->versions();
  EXPECT_EQ(versions.plugin, plugin_->build);
  EXPECT_THAT(versions.runtime, MatchesRegex("[0-9]+\\.[0-9]+"));
  EXPECT_THAT(versions.nccl, MatchesRegex("2\\.[0-9]+\\.[0-9]+"));
}

TEST_F(CudaPluginOfThisBuild, SaysWhyNoGpuCanBeUsed) {
  const Result<int> count = plugin_->device_count();
  if (count.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(count.status().message(),
              AnyOf(HasSubstr("driver is not installed"), HasSubstr("a newer driver is needed"),
                    HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_EQ(plugin_->make_ops(0).status(), count.status());
  EXPECT_EQ(plugin_->device(0).status(), count.status());
}

TEST_F(CudaPluginOfThisBuild, MakesARendezvousOfTheRealNccl) {
  auto made = plugin_->make_rendezvous(0, std::chrono::seconds(1));
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ((*made)->limit().get(), std::chrono::seconds(1));
  Communicator communicator(*std::move(made));
  EXPECT_EQ(communicator.size(), 1);
  EXPECT_EQ(communicator.Barrier().code(), StatusCode::kFailedPrecondition);
}

TEST(NcclLibrary, ThatIsMissingIsNamed) {
  EXPECT_THAT(LoadNccl("libnccl-that-nobody-has.so.2").status().message(),
              HasSubstr("libnccl-that-nobody-has.so.2"));
}

TEST(NcclLibrary, ThatIsNoNcclLacksAFunction) {
  EXPECT_THAT(LoadNccl("libm.so.6").status().message(), HasSubstr("ncclGetVersion"));
}

TEST(NcclVersions, AreReadAsNcclWritesThem) {
  EXPECT_EQ(NcclVersionText(22809), "2.28.9");
  EXPECT_EQ(NcclVersionText(21805), "2.18.5");
}

}  // namespace
}  // namespace muster
