// muster goodput, against a coordinator that answers from a script.

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

v1::Goodput Of(double ratio, double step, double recovery, double queue) {
  v1::Goodput goodput;
  goodput.set_ratio(ratio);
  for (const auto& [state, seconds] :
       {std::pair("step", step), std::pair("recovery", recovery), std::pair("queue", queue)}) {
    goodput.add_states()->set_state(state);
    goodput.mutable_states(goodput.states_size() - 1)->set_seconds(seconds);
  }
  return goodput;
}

class GoodputCommandTest : public CommandsTest {
 protected:
  GoodputCommandTest() {
    Serve();
    *coordinator_.job.mutable_goodput() = Of(0.9, 3600, 400, 60);
    coordinator_.cluster = Of(0.5, 7200, 7200, 0);
  }
  std::string Shown(std::vector<std::string> jobs, OutputFormat format = OutputFormat::kTable) {
    out_.str("");
    context_->output = format;
    jobs.insert(jobs.begin(), "goodput");
    const CommandResult result = Run(jobs);
    EXPECT_TRUE(result.ok() && *result == kExitSuccess) << result.status().ToString();
    return out_.str();
  }
};

TEST_F(GoodputCommandTest, ReportsEveryJobAndTheFleet) {
  EXPECT_EQ(
      Shown({}),
      "ID          NAME        STATE    GOODPUT  RANK TIME  QUEUE    LOST TO\n"
      "7f3a9c1e2b  llama-chat  running  90.0 %   1:07:40    0:01:00  recovery 0:06:40 (10.0 %)\n"
      "cluster     -           -        50.0 %   4:00:00    0:00:00  recovery 2:00:00 (50.0 "
      "%)\n");
}

TEST_F(GoodputCommandTest, WideHasAColumnForEachState) {
  const std::string text = Shown({}, OutputFormat::kWide);
  EXPECT_NE(text.find("STEP     RECOMPUTE  CHECKPOINT  RECOVERY  HANG     QUEUE    IDLE"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("1:00:00  0:00:00    0:00:00     0:06:40"), std::string::npos) << text;
}

TEST_F(GoodputCommandTest, ReportsNamedJobsAlone) {
  EXPECT_EQ(Shown({"7f3a9c1e2b"}, OutputFormat::kName), "7f3a9c1e2b\n");
  EXPECT_EQ(Shown({}, OutputFormat::kName), "7f3a9c1e2b\ncluster\n");
  EXPECT_EQ(Run({"goodput", "unknown"}).status().code(), StatusCode::kNotFound);
}

TEST_F(GoodputCommandTest, PrintsTheSameForPrograms) {
  const Json list = Json::parse(Shown({}, OutputFormat::kJson));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].at("id"), "7f3a9c1e2b");
  EXPECT_EQ(list[0].at("state"), "running");
  EXPECT_EQ(list[0].at("goodput").at("states").at("recovery"), 400);
  EXPECT_EQ(list[0].at("goodput").at("total_seconds"), 4060);
  EXPECT_EQ(list[1].at("id"), "cluster");
  EXPECT_EQ(list[1].at("goodput").at("ratio"), 0.5);
}

}  // namespace
}  // namespace muster
