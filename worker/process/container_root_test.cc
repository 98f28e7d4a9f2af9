#include "worker/process/container_root.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/run_child.h"
#include "worker/process/container_entry.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

// An image without programs, which muster-guardian enters with the node's own mounted.
class EnteredRoot : public testing::Test {
 protected:
  EnteredRoot() {
    for (const char* name : {"image/etc", "image/real", "data", "work", "scratch"})
      fs::create_directories(dir_ / name);
    dir_.Write("image/etc/of-image", "image");
    dir_.Write("data/row", "row");
    fs::create_symlink("/real", dir_ / "image/link");
    root_ = {.layers = {dir_ / "image"},
             .mounts = {},
             .directories = {"/tmp"},
             .environment = {"FROM_IMAGE=yes"},
             .library_path = "",
             .working_directory = "/",
             .scratch = dir_ / "scratch"};
    for (const char* path : {"/bin", "/usr", "/lib", "/lib64", "/proc", "/dev"})
      root_.mounts.push_back({path, path, /*read_only=*/true, /*optional=*/true});
  }

  void SetUp() override {
    if (Run("true").find("make no namespaces") != std::string::npos)
      GTEST_SKIP() << "this machine lets its user make no namespaces";
  }

  // What a shell in the root prints; `as`: words before its command line.
  std::string Run(const std::string& script, std::vector<std::string> as = {}) {
    const std::string file = dir_.Write("container.json", EncodeContainerRoot(root_));
    as.insert(as.end(), {guardian_, kRunInContainer, file, "/bin/sh", "-c", script});
    const auto outcome = RunChild({.spawn = {.argv = as, .environment = {}}, .input = ""});
    if (!outcome.ok()) return outcome.status().message();
    return outcome->output + (outcome->exit.exit_code != 0 ? outcome->Describe() : "");
  }

  const TempDirForTest dir_;
  std::string guardian_ = MUSTER_GUARDIAN_BINARY;
  ContainerRoot root_;
};

// Mount points are made in directories of the image that belong to root.
TEST_F(EnteredRoot, IsTheSameForAUserWithoutRights) {
  if (::geteuid() != 0) GTEST_SKIP() << "all other tests show it then";
  ASSERT_EQ(::chmod(dir_.path().c_str(), 0755), 0);
  ASSERT_EQ(::chown((dir_ / "scratch").c_str(), 65534, 65534), 0);
  fs::copy_file(guardian_, dir_ / "guardian");
  guardian_ = dir_ / "guardian";
  root_.mounts.push_back({dir_ / "data", "/link/deep/data", true});
  EXPECT_EQ(Run("read -r x </real/deep/data/row; echo $x; "
                "while read -r name value rest; do case $name in CapEff:|Uid:) echo $value; esac; "
                "done </proc/self/status",
                {"/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}),
            "row\n65534\n0000000000000000\n");
}

TEST_F(EnteredRoot, ShowsTheImageAndNotTheNode) {
  EXPECT_EQ(Run("read -r x </etc/of-image; echo $x $FROM_IMAGE; test -e /etc/passwd || echo none"),
            "image yes\nnone\n");
}

TEST_F(EnteredRoot, TakesWritesThatTheImageDoesNotGet) {
  EXPECT_EQ(Run("echo new >/etc/of-image; read -r x </etc/of-image; echo $x; echo a >/tmp/a"),
            "new\n");
  EXPECT_EQ(ReadFile(dir_ / "image/etc/of-image").value(), "image");
  EXPECT_FALSE(fs::exists(dir_ / "image/tmp"));
  EXPECT_TRUE(fs::is_empty(dir_ / "scratch"));
}

TEST_F(EnteredRoot, MountsInAReadOnlyImageWhereItsLinksLeadAndNotOnTheNode) {
  ::chmod((dir_ / "image/real").c_str(), 0555);
  root_.mounts.push_back({dir_ / "data", "/link/deep/data", true});
  root_.mounts.push_back({dir_ / "data/row", "/etc/row"});
  EXPECT_EQ(Run("read -r x </real/deep/data/row; echo $x; read -r x </etc/row; echo $x;"
                "(echo y >/link/deep/data/y) 2>/dev/null || echo refused"),
            "row\nrow\nrefused\n");
  EXPECT_FALSE(fs::exists("/real"));
  EXPECT_TRUE(fs::is_empty(dir_ / "image/real"));
}

TEST_F(EnteredRoot, WritesToWhatIsMountedForThat) {
  root_.mounts.push_back({dir_ / "work", "/w"});
  root_.mounts.push_back({dir_ / "data", "/w/made", true});
  EXPECT_EQ(Run("echo out >/w/file; test -e /w/made/row && echo there"), "there\n");
  EXPECT_EQ(ReadFile(dir_ / "work/file").value(), "out\n");
}

TEST_F(EnteredRoot, PassesTheExitCodeOn) { EXPECT_THAT(Run("exit 7"), StartsWith("exit code 7")); }

TEST_F(EnteredRoot, SaysWhatIsMissing) {
  root_.working_directory = "/nowhere";
  EXPECT_THAT(Run("true"), HasSubstr("enter directory /nowhere in the container"));
  root_.mounts.push_back({dir_ / "gone", "/gone"});
  EXPECT_THAT(Run("true"),
              HasSubstr("container.mounts: there is no " + dir_ / "gone" + " on this node"));
  root_.mounts.back() = {dir_ / "data", "/etc/of-image/below"};
  EXPECT_THAT(Run("true"), HasSubstr("the image has no place for /etc/of-image/below"));
  root_.mounts.pop_back();
  root_.layers = {dir_ / "no-layer"};
  EXPECT_THAT(Run("true"), HasSubstr("container.image: mount its layers as an overlay"));
}

TEST(ContainerRoot, IsTheSameAfterItsFile) {
  const ContainerRoot root{.layers = {"/a", "/b:c"},
                           .mounts = {{"/s", "/t", true, true}, {"/u", "/u"}},
                           .directories = {"/tmp"},
                           .environment = {"A=b"},
                           .library_path = "/l",
                           .working_directory = "/w",
                           .scratch = "/x"};
  EXPECT_EQ(DecodeContainerRoot(EncodeContainerRoot(root)).value(), root);
  EXPECT_FALSE(DecodeContainerRoot("{}").ok());
}

}  // namespace
}  // namespace muster
