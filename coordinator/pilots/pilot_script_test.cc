#include "coordinator/pilots/pilot_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Render(const PoolConfig& config, const PilotScriptRequest& request) {
  const auto script = RenderPilotScript(config, request);
  EXPECT_TRUE(script.ok()) << script.status().ToString();
  return script.ok() ? *script : "";
}

TEST(PilotScriptTest, SaysWhatTheFileSays) {
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

TEST(PilotScriptTest, ARelativePoolIsRefused) {
  EXPECT_FALSE(RenderPilotScript({}, {"p1", "pool", "10.0.0.1:7070", {}}).ok());
  EXPECT_FALSE(RenderPilotScript({}, {"p1", "/po%ol", "10.0.0.1:7070", {}}).ok());
  EXPECT_FALSE(RenderPilotScript({}, {"../p1", "/pool", "10.0.0.1:7070", {}}).ok());
}

}  // namespace
}  // namespace muster
