#include "worker/agent/container.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/testing/temp_dir.h"

namespace muster::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ContainerImage, IsADirectoryOfTheNode) {
  const TempDirForTest dir;
  const auto image = FindContainerImage(dir.path(), "");
  ASSERT_TRUE(image.ok()) << image.status().ToString();
  EXPECT_THAT(image->layers, ElementsAre(dir.path()));
}

TEST(ContainerImage, ThatTheNodeLacksIsNamedWithWhatToDo) {
  const TempDirForTest dir;
  EXPECT_EQ(FindContainerImage(dir / "none", "").status().message(),
            "container.image: there is no directory " + dir / "none" + " on this node");
  EXPECT_THAT(FindContainerImage(dir.Write("a.tar", ""), "").status().message(),
              HasSubstr("podman load --input " + dir / "a.tar"));
  EXPECT_THAT(FindContainerImage("a:1", "").status().message(), HasSubstr("has no podman"));
  EXPECT_THAT(FindContainerImage("a:1", "/bin/false").status().message(),
              HasSubstr("run `podman pull a:1` there"));
}

TEST(ContainerImage, OfPodmanHasItsLayersFromTheTopDown) {
  const auto image = ParsePodmanImage(R"([{"Config": {"Env": ["PATH=/opt/bin", "A=b=c"]},
    "GraphDriver": {"Name": "overlay",
                    "Data": {"UpperDir": "/s/3/diff", "LowerDir": "/s/2/diff:/s/1/diff"}}}])");
  ASSERT_TRUE(image.ok()) << image.status().ToString();
  EXPECT_THAT(image->layers, ElementsAre("/s/3/diff", "/s/2/diff", "/s/1/diff"));
  EXPECT_THAT(image->environment, ElementsAre("PATH=/opt/bin", "A=b=c"));
}

TEST(ContainerImage, OfPodmanWithoutLayersIsRefused) {
  EXPECT_THAT(
      ParsePodmanImage(R"([{"GraphDriver": {"Name": "vfs", "Data": {}}}])").status().message(),
      HasSubstr("stores it by vfs"));
  EXPECT_THAT(ParsePodmanImage("[]").status().message(), HasSubstr("in another way"));
}

TEST(LoadedLibraries, AreThoseThatTheLinkerFinds) {
  EXPECT_THAT(ParseLoadedLibraries("\tlinux-vdso.so.1 (0x00007f)\n"
                                   "\tlibc.so.6 => /lib/libc.so.6 (0x00007f)\n"
                                   "\tlibgone.so => not found\n"
                                   "\tlibt.so => /opt/bin/../lib/libt.so (0x00007f)\n"
                                   "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"),
              ElementsAre("/lib/libc.so.6", "/opt/lib/libt.so", "/lib64/ld-linux-x86-64.so.2"));
}

TEST(ContainerMounts, HaveADirectoryBeforeWhatIsMountedInItAndTheJobsOwnLast) {
  JobSpec spec;
  spec.workdir = "/w";
  spec.container.mounts = {{"/fast", "/w/data", true}, {"/mine", "/etc/hosts"}};
  const Prepare prepare{.output_dir = "/w/out"};
  std::vector<std::string> seen;
  for (const RootMount& mount : ContainerMounts(spec, prepare, "/c/jobs/j", {"/bin/t"}))
    seen.push_back(mount.source + ":" + mount.target + (mount.read_only ? ":ro" : ""));
  EXPECT_THAT(seen, ElementsAre("/bin/t:/bin/t:ro", "/c/jobs/j:/c/jobs/j", "/dev:/dev",
                                "/etc/hosts:/etc/hosts:ro", "/mine:/etc/hosts",
                                "/etc/resolv.conf:/etc/resolv.conf:ro", "/proc:/proc", "/sys:/sys",
                                "/w:/w", "/fast:/w/data:ro"));
}

TEST(ContainerMounts, HaveTheOutputAndTheTokensWhereTheyLieElsewhere) {
  JobSpec spec;
  spec.workdir = "/w";
  spec.train.emplace();
  std::vector<std::string> seen;
  for (const RootMount& mount : ContainerMounts(spec, {.output_dir = "/o/out"}, "/j", {}))
    if (mount.target.starts_with("/o")) seen.push_back(mount.target);
  EXPECT_THAT(seen, ElementsAre("/o/.muster-cache", "/o/out"));
}

}  // namespace
}  // namespace muster::worker
