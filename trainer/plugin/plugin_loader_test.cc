#include "trainer/plugin/plugin_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

const std::string kFolder = MUSTER_TEST_PLUGINS;

Status OpenFailure(const std::string& path) { return OpenCudaPlugin(path).status(); }

TEST(PluginLoader, OpensAPluginOfItsOwnBuild) {
  const auto plugin = OpenCudaPlugin(kFolder + "/libtest_plugin.so");
  ASSERT_TRUE(plugin.ok()) << plugin.status().ToString();
  EXPECT_EQ((*plugin)->versions().nccl, "2.28.9");
}

TEST(PluginLoader, SaysHowToBuildAPluginThatIsMissing) {
  EXPECT_THAT(OpenFailure("/nowhere/libmuster_cuda.so").message(),
              AllOf(HasSubstr("/nowhere/libmuster_cuda.so"), HasSubstr("-DMUSTER_CUDA=ON")));
}

TEST(PluginLoader, NamesTheLibraryThatAPluginLacks) {
  EXPECT_THAT(OpenFailure(kFolder + "/libtest_plugin_unlinked.so").message(),
              AllOf(HasSubstr("cannot be loaded"), HasSubstr("a_function_that_nobody_has"),
                    HasSubstr("install-deps --cuda")));
}

TEST(PluginLoader, RefusesALibraryThatIsNoPlugin) {
  EXPECT_THAT(OpenFailure(kFolder + "/libtest_plugin_empty.so").message(),
              HasSubstr("is not a CUDA plug-in"));
}

TEST(PluginLoader, RefusesAnotherBuild) {
  EXPECT_THAT(OpenFailure(kFolder + "/libtest_plugin_older.so").message(),
              AllOf(HasSubstr("is of build 0.0.9-older"), HasSubstr("from one tree")));
}

TEST(PluginLoader, PassesOnWhyNoGpuCanBeUsed) {
  ::setenv("MUSTER_CUDA_PLUGIN", (kFolder + "/libtest_plugin.so").c_str(), 1);
  EXPECT_EQ(LoadCudaPlugin().status(), FailedPrecondition("no driver of NVIDIA is installed"));
  ::unsetenv("MUSTER_CUDA_PLUGIN");
  EXPECT_THAT(CudaPluginPath(), EndsWith("/libmuster_cuda.so"));
}

}  // namespace
}  // namespace muster
