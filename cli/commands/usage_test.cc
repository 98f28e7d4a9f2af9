// muster usage, against a coordinator that answers from a script.

#include <gtest/gtest.h>

#include "cli/base/exit_code.h"
#include "cli/commands/testing/commands_testing.h"

namespace muster {
namespace {

class UsageVerbTest : public CommandsTest {
 protected:
  UsageVerbTest() {
    v1::QueueDay& row = *coordinator_.usage.add_days();
    row.set_day(20'784);
    row.set_queue("vision");
    row.mutable_gpus()->set_productive(2.5 * 3600);
    row.mutable_gpus()->set_lost(1800);
    row.mutable_slots()->set_productive(5 * 3600);
    v1::QueueDay& next = *coordinator_.usage.add_days();
    next.set_day(20'785);
    next.set_queue("default");
    next.mutable_slots()->set_lost(3600);
  }
};

TEST_F(UsageVerbTest, PrintsHoursByDayAndQueueAndTheirSum) {
  Serve();
  ASSERT_TRUE(Run({"usage"}).ok());
  EXPECT_EQ(out_.str(),
            "DAY         QUEUE    GPU-HOURS  PRODUCTIVE  LOST  SLOT-HOURS  PRODUCTIVE  LOST\n"
            "2026-11-27  vision   3.00       2.50        0.50  5.00        5.00        0.00\n"
            "2026-11-28  default  0.00       0.00        0.00  1.00        0.00        1.00\n"
            "all         -        3.00       2.50        0.50  6.00        5.00        1.00\n");
  EXPECT_EQ(coordinator_.usage_asked.since_day(), 0);
  EXPECT_EQ(coordinator_.usage_asked.queue(), "");
  EXPECT_FALSE(coordinator_.usage_asked.by_user());
}

TEST_F(UsageVerbTest, PrintsCsv) {
  Serve();
  ASSERT_TRUE(Run({"usage", "--csv", "--queue", "research", "--since", "2026-11-01", "--until",
                   "2026-11-30"})
                  .ok());
  EXPECT_EQ(out_.str(),
            "day,queue,gpu_hours_allocated,gpu_hours_productive,gpu_hours_lost,"
            "slot_hours_allocated,slot_hours_productive,slot_hours_lost\n"
            "2026-11-27,vision,3.000000,2.500000,0.500000,5.000000,5.000000,0.000000\n"
            "2026-11-28,default,0.000000,0.000000,0.000000,1.000000,0.000000,1.000000\n");
  EXPECT_EQ(coordinator_.usage_asked.queue(), "research");
  EXPECT_EQ(coordinator_.usage_asked.since_day(), 20'758);
  EXPECT_EQ(coordinator_.usage_asked.until_day(), 20'787);
}

TEST_F(UsageVerbTest, PrintsAColumnOfUsersWhereTheyAreAskedFor) {
  coordinator_.usage.mutable_days(0)->set_user("ada");
  Serve();
  ASSERT_TRUE(Run({"usage", "--by", "user"}).ok());
  EXPECT_EQ(
      out_.str(),
      "DAY         QUEUE    USER  GPU-HOURS  PRODUCTIVE  LOST  SLOT-HOURS  PRODUCTIVE  LOST\n"
      "2026-11-27  vision   ada   3.00       2.50        0.50  5.00        5.00        0.00\n"
      "2026-11-28  default  -     0.00       0.00        0.00  1.00        0.00        1.00\n"
      "all         -        -     3.00       2.50        0.50  6.00        5.00        1.00\n");
  EXPECT_TRUE(coordinator_.usage_asked.by_user());
  EXPECT_EQ(coordinator_.usage_asked.user(), "");
  out_.str("");
  ASSERT_TRUE(Run({"usage", "--user", "ada", "--csv"}).ok());
  EXPECT_NE(out_.str().find("day,queue,user,gpu_hours_allocated,"), std::string::npos);
  EXPECT_NE(out_.str().find("\n2026-11-27,vision,ada,3.000000,"), std::string::npos) << out_.str();
  EXPECT_NE(out_.str().find("\n2026-11-28,default,,0.000000,"), std::string::npos) << out_.str();
  EXPECT_TRUE(coordinator_.usage_asked.by_user());
  EXPECT_EQ(coordinator_.usage_asked.user(), "ada");
  out_.str("");
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"usage", "--by", "user"}).ok());
  const Json json = Json::parse(out_.str());
  EXPECT_EQ(json[0]["user"], "ada");
  EXPECT_EQ(json[1]["user"], nullptr);
  EXPECT_EQ(ExitCodeOf(Run({"usage", "--by", "team"}).status()), kExitBadUsage);
}

TEST_F(UsageVerbTest, PrintsSecondsForPrograms) {
  Serve();
  context_->output = OutputFormat::kJson;
  ASSERT_TRUE(Run({"usage"}).ok());
  const Json json = Json::parse(out_.str());
  ASSERT_EQ(json.size(), 2u);
  EXPECT_EQ(json[0]["day"], "2026-11-27");
  EXPECT_FALSE(json[0].contains("user"));
  EXPECT_EQ(json[0]["gpu_seconds"]["allocated"], 3 * 3600);
  EXPECT_EQ(json[0]["slot_seconds"]["productive"], 5 * 3600);
  EXPECT_EQ(json[1]["slot_seconds"]["lost"], 3600);
}

TEST_F(UsageVerbTest, RefusesWhatIsNoDay) {
  Serve();
  for (const char* day : {"yesterday", "2026-11-31", "2026-11-1", "2026-11-01T00:00", "1969-12-31"})
    EXPECT_EQ(ExitCodeOf(Run({"usage", "--since", day}).status()), kExitBadUsage) << day;
  EXPECT_EQ(ExitCodeOf(Run({"usage", "--since", "2026-11-02", "--until", "2026-11-01"}).status()),
            kExitBadUsage);
}

TEST_F(UsageVerbTest, AnUnknownQueueIsNotFound) {
  coordinator_.usage_status = {grpc::StatusCode::NOT_FOUND,
                               "unknown queue 'visoin'; did you mean 'vision'?"};
  Serve();
  const CommandResult result = Run({"usage", "--queue", "visoin"});
  EXPECT_EQ(ExitCodeOf(result.status()), kExitNotFound);
  EXPECT_NE(result.status().message().find("did you mean 'vision'?"), std::string::npos);
}

}  // namespace
}  // namespace muster
