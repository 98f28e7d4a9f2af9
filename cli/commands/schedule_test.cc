// muster schedule, against a coordinator that answers from a script.

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"
#include "coordinator/replay/recording.h"
#include "coordinator/replay/schedule_record.h"

namespace muster {
namespace {

// A node with a free slot, and two jobs that want one.
v1::SchedulePass Pass() {
  NodeInventory inventory;
  SchedulerSnapshot snapshot{.now = TimePoint(std::chrono::hours(1))};
  snapshot.nodes = {
      {.name = NodeName{"n1"}, .inventory = &inventory, .all = {.slots = 1}, .free = {.slots = 1}}};
  snapshot.requests = {{.job = JobId{"7f"}, .submit_order = 1, .length = std::chrono::minutes(10)},
                       {.job = JobId{"8c"}, .submit_order = 2, .length = std::chrono::minutes(10)}};
  return ToProto(snapshot, Plan(snapshot), 1'700'000'000'000);
}

class ScheduleVerbsTest : public CommandsTest {
 protected:
  std::string Write(const std::string& bytes) {
    const std::string path = dir_ + "/a.schedule";
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return path;
  }
};

constexpr char kPlan[] =
    "7f starts on n1\n"
    "8c waits: needs 1 node with 1 free slot; no ready node has room, 1 has too few free slots; "
    "starts in 0h 10m 0s at the latest on n1\n";

TEST_F(ScheduleVerbsTest, AnExportIsAFileThatReplaysToTheSamePlan) {
  coordinator_.recording = RecordingHeader() + RecordingFrame(Pass());
  Serve();
  const std::string file = dir_ + "/plan.schedule";
  ASSERT_TRUE(Run({"schedule", "export", file}).ok());
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(*ReadFile(file), coordinator_.recording);
  for (int again = 0; again < 2; ++again) {
    out_.str("");
    EXPECT_EQ(*Run({"schedule", "replay", file}), kExitSuccess);
    EXPECT_EQ(out_.str(), std::string(kPlan) + "1 pass, equal\n");
  }
  for (const std::vector<std::string>& to_output :
       {std::vector<std::string>{"schedule", "export"}, {"schedule", "export", "-"}}) {
    out_.str("");
    ASSERT_TRUE(Run(to_output).ok());
    EXPECT_EQ(out_.str(), coordinator_.recording);
  }
}

TEST_F(ScheduleVerbsTest, ARecordingIsSummedUpAndShowsAPassOnRequest) {
  const std::string file =
      Write(RecordingHeader() + RecordingFrame(Pass()) + RecordingFrame(Pass()));
  EXPECT_EQ(*Run({"schedule", "replay", file}), kExitSuccess);
  EXPECT_EQ(out_.str(), "2 passes, all equal\n");
  out_.str("");
  EXPECT_EQ(*Run({"schedule", "replay", file, "--pass", "2"}), kExitSuccess);
  EXPECT_EQ(out_.str(), std::string(kPlan) + "2 passes, all equal\n");
  const CommandResult none = Run({"schedule", "replay", file, "--pass", "3"});
  EXPECT_EQ(ExitCodeOf(none.status()), kExitNotFound);
}

TEST_F(ScheduleVerbsTest, TheFirstDifferenceIsNamedAndTheExitCodeSaysSo) {
  v1::SchedulePass other = Pass();
  other.set_version("0.1");
  other.mutable_plan()->mutable_waiting(0)->mutable_promise()->set_start(0);
  const std::string file = Write(RecordingHeader() + RecordingFrame(Pass()) +
                                 RecordingFrame(other) + RecordingFrame(other));
  EXPECT_EQ(*Run({"schedule", "replay", file}), kExitError);
  EXPECT_NE(
      out_.str().find("3 passes; pass 2 differs in decision 2:\n  recorded, by 0.1: 8c waits"),
      std::string::npos)
      << out_.str();
  EXPECT_NE(out_.str().find("\n  replayed: 8c waits"), std::string::npos);
  out_.str("");
  context_->output = OutputFormat::kJson;
  EXPECT_EQ(*Run({"schedule", "replay", file}), kExitError);
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json["passes"], 3);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["difference"]["pass"], 2);
  EXPECT_EQ(json["plan"], nullptr);
}

TEST_F(ScheduleVerbsTest, APlanForProgramsHasNodesAndDevicesByIndex) {
  v1::SchedulePass pass = Pass();
  const std::string file = Write(RecordingHeader() + RecordingFrame(pass));
  context_->output = OutputFormat::kJson;
  EXPECT_EQ(*Run({"schedule", "replay", file}), kExitSuccess);
  const Json plan = Json::parse(out_.str())["plan"];
  EXPECT_EQ(plan["placements"][0]["nodes"][0]["node"], "n1");
  EXPECT_EQ(plan["placements"][0]["nodes"][0]["devices"], Json::array());
  EXPECT_EQ(plan["waiting"][0]["promise"]["in_seconds"], 600);
  EXPECT_EQ(plan["waiting"][0]["delayed"], "none");
  EXPECT_EQ(plan["reclaims"], Json::array());
  EXPECT_EQ(plan["again_at"], nullptr);
}

// A job of a higher class waits for a gang that gives way at once, or in a minute.
v1::SchedulePass PassWithAVictim(std::chrono::minutes from_now) {
  const NodeInventory inventory;
  const TimePoint now(std::chrono::hours(1));
  SchedulerSnapshot snapshot{.now = now};
  snapshot.nodes = {{.name = NodeName{"n1"}, .inventory = &inventory, .all = {.slots = 1}}};
  snapshot.requests = {{.job = JobId{"8c"}, .class_value = 1}};
  snapshot.running = {{.job = JobId{"7f"},
                       .amounts = {.slots = 1},
                       .parts = {{NodeName{"n1"}, {.slots = 1}}},
                       .victim_from = now + from_now,
                       .nodes = 1,
                       .least_nodes = 1,
                       .node_amounts = {.slots = 1},
                       .cost = 12.5}};
  return ToProto(snapshot, Plan(snapshot), 0);
}

TEST_F(ScheduleVerbsTest, APlanForProgramsHasReclaimsAndWhenToLookAgain) {
  context_->output = OutputFormat::kJson;
  const auto plan = [this](std::chrono::minutes from_now) {
    out_.str("");
    const std::string file = Write(RecordingHeader() + RecordingFrame(PassWithAVictim(from_now)));
    EXPECT_EQ(*Run({"schedule", "replay", file}), kExitSuccess);
    return Json::parse(out_.str())["plan"];
  };
  const Json now = plan(std::chrono::minutes(0));
  EXPECT_EQ(now["reclaims"], Json::array({{{"victim", "7f"},
                                           {"claimant", "8c"},
                                           {"cause", "class"},
                                           {"cost", 12.5},
                                           {"to_nodes", 0},
                                           {"gives_up", Json::array()}}}));
  const Json later = plan(std::chrono::minutes(1));
  EXPECT_EQ(later["reclaims"], Json::array());
  EXPECT_EQ(later["again_at"]["in_seconds"], 60);
}

TEST_F(ScheduleVerbsTest, ADifferenceOfLessThanASecondIsShown) {
  v1::SchedulePass other = Pass();
  v1::SchedulePromise& promise = *other.mutable_plan()->mutable_waiting(0)->mutable_promise();
  promise.set_start(promise.start() + 1);
  EXPECT_EQ(*Run({"schedule", "replay", Write(RecordingHeader() + RecordingFrame(other))}),
            kExitError);
  EXPECT_NE(out_.str().find("starts in 0h 10m 0s 1ns at the latest"), std::string::npos)
      << out_.str();
  EXPECT_NE(out_.str().find("starts in 0h 10m 0s 0ns at the latest"), std::string::npos);
}

TEST_F(ScheduleVerbsTest, WhatAFileSaysCommandsNoTerminal) {
  v1::SchedulePass other = Pass();
  other.set_version("\x1b[2J");
  other.mutable_plan()->mutable_placements(0)->set_job("\x1b]0;x");
  EXPECT_EQ(*Run({"schedule", "replay", Write(RecordingHeader() + RecordingFrame(other))}),
            kExitError);
  EXPECT_EQ(out_.str().find('\x1b'), std::string::npos) << out_.str();
}

TEST_F(ScheduleVerbsTest, WhatIsBeforeAPassThatCannotBePlannedIsSummedUp) {
  const std::string two = RecordingHeader() + RecordingFrame(Pass()) + RecordingFrame(Pass());
  const CommandResult torn =
      Run({"schedule", "replay", Write(two + RecordingFrame(Pass()).substr(0, 40))});
  EXPECT_EQ(out_.str(), "2 passes, all equal\n");
  EXPECT_EQ(torn.status().code(), StatusCode::kDataLoss);
  const std::string at = ", at byte " + std::to_string(two.size());
  EXPECT_NE(torn.status().message().find("a.schedule ends within pass 3" + at), std::string::npos)
      << torn.status().message();
  out_.str("");
  v1::SchedulePass impossible = Pass();
  impossible.mutable_snapshot()->set_now(-1);
  const CommandResult refused =
      Run({"schedule", "replay", Write(two + RecordingFrame(impossible))});
  EXPECT_EQ(out_.str(), "2 passes, all equal\n");
  EXPECT_NE(refused.status().message().find("a.schedule, pass 3" + at + ": it has"),
            std::string::npos)
      << refused.status().message();
}

TEST_F(ScheduleVerbsTest, WhatIsNoWholeRecordingIsAnError) {
  const std::string whole = RecordingHeader() + RecordingFrame(Pass());
  const CommandResult cut = Run({"schedule", "replay", Write(whole.substr(0, whole.size() - 1))});
  EXPECT_EQ(cut.status().code(), StatusCode::kDataLoss);
  EXPECT_NE(cut.status().message().find("a.schedule ends within pass 1"), std::string::npos);
  const CommandResult foreign = Run({"schedule", "replay", Write("queues: {}\n")});
  EXPECT_EQ(ExitCodeOf(foreign.status()), kExitBadUsage);
  EXPECT_EQ(ExitCodeOf(Run({"schedule", "replay", dir_ + "/none"}).status()), kExitNotFound);
}

}  // namespace
}  // namespace muster
