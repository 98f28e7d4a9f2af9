#include "coordinator/pilots/pilot_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/run_child.h"

namespace muster {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Render(const PoolConfig& config, const PilotScriptRequest& request) {
  const auto script = RenderPilotScript(config, request);
  EXPECT_TRUE(script.ok()) << script.status().ToString();
  return script.ok() ? *script : "";
}

TEST(PilotScriptTest, ContainsTheSettingsOfTheFile) {
  PoolConfig config;
  config.nodes_per_pilot = 2;
  config.time_limit_seconds = 90;
  config.partition = "gpu";
  config.options = {"--account=lab", "--container-image=img.sqsh"};
  config.setup = {"module load cuda"};
  config.slots = 8;
  config.interface = "ib0";
  config.orphan_seconds = 77;
  const std::string script =
      Render(config, {"p1", "/shared/it's/pilots", "10.0.0.1:7070", {"n1", "n2", "n7"}});
  for (const char* part :
       {"#SBATCH --job-name=muster-pilot\n", "#SBATCH --nodes=2\n", "#SBATCH --time=2\n",
        "#SBATCH --partition=gpu\n", "#SBATCH --exclude=n[1-2,7]\n", "#SBATCH --account=lab\n",
        "#SBATCH --exclusive\n", "#SBATCH --mem=0\n", "\nmodule load cuda\n", "< 77))",
        "--container-image=img.sqsh \\\n", "--coordinator 10.0.0.1:7070 --pilot p1",
        "--slots 8 --interface ib0", "it'\\''s/pilots"})
    EXPECT_THAT(script, HasSubstr(part));
  EXPECT_THAT(script, Not(HasSubstr("#SBATCH --container-image")));
  EXPECT_THAT(script, Not(HasSubstr("@")));
}

TEST(PilotScriptTest, SharedNodesAreTheUsersToAskFor) {
  PoolConfig config;
  config.options = {"--oversubscribe", "--mem=4G"};
  const std::string script = Render(config, {"p1", "/pool", "10.0.0.1:7070", {}});
  EXPECT_THAT(script, Not(HasSubstr("--exclusive")));
  EXPECT_THAT(script, Not(HasSubstr("--mem=0")));
  EXPECT_THAT(script, Not(HasSubstr("--exclude")));
}

// Slurm with proctrack/cgroup signals only tasks: here the worker first has SIGTERM sent to the
// task's shell, and to itself the signal that a site's --signal sends to all.
TEST(PilotScriptTest, ASignalToTheTaskAloneReachesItsWorkerOnce) {
  const TempDirForTest dir;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(dir / name).parent_path());
    EXPECT_TRUE(WriteFileAtomically(dir / name, text, 0755).ok());
  };
  write("pool/alive", "1");
  write("pool/p1/tokens/n1", "token");
  write("bin/srun", "#!/bin/bash\nwhile [[ $1 != bash ]]; do shift; done\nexec \"$@\"\n");
  write("bin/muster-worker",
        "#!/bin/bash\ncd \"$PILOT_TEST\"\ntrap 'echo told >> told' TERM\n"
        "kill -USR2 $$\nkill -USR1 $PPID\n"
        "for ((i = 0; i < 500; i++)); do read -rt 0.02 <> <(:); [[ -e told ]] && break; done\n"
        "read -rt 1 <> <(:)\nexit 7\n");
  PoolConfig config;
  config.worker = dir / "bin/muster-worker";
  write("script", Render(config, {"p1", dir / "pool", "10.0.0.1:7070", {}}));
  const auto done =
      RunChild({.spawn = {.argv = {"/bin/bash", dir / "script"},
                          .environment = {"PATH=" + (dir / "bin") + ":/usr/bin:/bin",
                                          "SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n1",
                                          "SLURM_JOB_NUM_NODES=1", "SLURMD_NODENAME=n1",
                                          "TMPDIR=" + (dir / ""), "PILOT_TEST=" + (dir / "")},
                          .working_directory = dir / ""},
                .limit = std::chrono::seconds(30)});
  ASSERT_TRUE(done.ok()) << done.status().ToString();
  const auto told = ReadFile(dir / "told");
  ASSERT_TRUE(told.ok()) << "never told; " << done->output;
  EXPECT_EQ(*told, "told\n");
  EXPECT_TRUE(done->ok()) << "asked to end, it ends well: " << done->output;
}

TEST(PilotScriptTest, ARelativePoolIsRefused) {
  EXPECT_FALSE(RenderPilotScript({}, {"p1", "pool", "10.0.0.1:7070", {}}).ok());
  EXPECT_FALSE(RenderPilotScript({}, {"p1", "/po%ol", "10.0.0.1:7070", {}}).ok());
  EXPECT_FALSE(RenderPilotScript({}, {"../p1", "/pool", "10.0.0.1:7070", {}}).ok());
}

}  // namespace
}  // namespace muster
