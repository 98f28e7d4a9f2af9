#include "worker/agent/trainer_report.h"

#include <gtest/gtest.h>

namespace muster::worker {
namespace {

const JobId kJob{"00c0ffee00"};

template <typename Kind>
Kind Parse(const std::string& json) {
  const auto report = ParseTrainerReport(kJob, 2, 1, json);
  EXPECT_TRUE(report.ok()) << json << ": " << report.status().ToString();
  if (!report.ok() || !std::holds_alternative<Kind>(report->body)) {
    ADD_FAILURE() << json << " is of another kind";
    return {};
  }
  EXPECT_EQ(report->job, kJob);
  EXPECT_EQ(report->generation, 2);
  EXPECT_EQ(report->rank, 1);
  return std::get<Kind>(report->body);
}

TEST(TrainerReports, EveryKindOfTheTrainersProtocolIsParsed) {
  Parse<Formed>(R"({"type":"formed"})");
  EXPECT_EQ(
      Parse<Resumed>(R"({"type":"resumed","step":40,"rejected":[{"directory":"d","reason":"r"}]})"),
      (Resumed{.step = 40, .rejected = {{"d", "r"}}, .from = {}}));
  EXPECT_EQ(Parse<Resumed>(R"({"type":"resumed","step":40,"from":"snapshot"})").from, "snapshot");
  EXPECT_EQ(Parse<Parked>(R"({"type":"parked","step":40})").step, 40);
  EXPECT_EQ(Parse<FirstStep>(R"({"type":"first_step","step":41})").step, 41);
  EXPECT_EQ(Parse<CheckpointFailed>(R"({"type":"checkpoint_failed","step":50,"kind":"disk_full",
                                         "reason":"full"})"),
            (CheckpointFailed{.step = 50, .kind = CheckpointTrouble::kDiskFull, .reason = "full"}));
  EXPECT_EQ(Parse<TrainerError>(R"({"type":"error","kind":"data","message":"m","step":12})"),
            (TrainerError{.kind = "data", .message = "m", .step = 12, .symptom = false}));
  EXPECT_TRUE(
      Parse<TrainerError>(R"({"type":"error","kind":"nonfinite","message":"m","symptom":true})")
          .symptom);
  EXPECT_EQ(Parse<TrainerNote>(R"({"type":"note","severity":"warning","message":"m"})"),
            (TrainerNote{.severity = "warning", .message = "m"}));
  EXPECT_EQ(Parse<Finished>(R"({"type":"finished","step":200,"model_dir":"/m"})"),
            (Finished{.step = 200, .model_dir = "/m"}));
}

TEST(TrainerReports, AShardIsParsedWithAndWithoutAnEvaluation) {
  ShardWritten wanted{
      .step = 50,
      .directory = "step-00000050-g2",
      .shard = {.rank = 1, .file = "f", .bytes = 12345678901, .checksum = "xxh3:00"}};
  EXPECT_EQ(Parse<ShardWritten>(
                R"({"type":"shard_written","step":50,"directory":"step-00000050-g2",)"
                R"("shard":{"rank":1,"file":"f","bytes":12345678901,"checksum":"xxh3:00"}})"),
            wanted);
  wanted.eval_loss = 2.5;
  EXPECT_EQ(
      Parse<ShardWritten>(
          R"({"type":"shard_written","step":50,"directory":"step-00000050-g2","eval_loss":2.5,)"
          R"("shard":{"rank":1,"file":"f","bytes":12345678901,"checksum":"xxh3:00"}})"),
      wanted);
}

TEST(TrainerReports, ANumberThatIsNoWholeOneOfItsKindIsAnError) {
  for (const char* number : {"1e300", "-1e300", "1.5", "9223372036854775808", "true", "null"}) {
    const std::string json = std::string(R"({"type":"first_step","step":)") + number + "}";
    EXPECT_FALSE(ParseTrainerReport(JobId{"j"}, 1, 0, json).ok()) << number;
  }
  EXPECT_FALSE(ParseTrainerReport(JobId{"j"}, 1, 0,
                                  R"({"type":"shard_written","step":1,"directory":"d","shard":)"
                                  R"({"rank":4294967296,"file":"f","bytes":1,"checksum":"c"}})")
                   .ok());
}

// Among the reports of a Hello it had the whole node refused.
TEST(TrainerReports, ANameThatTheCoordinatorRefusesIsAnError) {
  const std::string fits(255, 'd'), longer(256, 'd');
  const auto shard = [](const std::string& directory, const std::string& file,
                        const std::string& checksum) {
    return ParseTrainerReport(kJob, 2, 1,
                              R"({"type":"shard_written","step":1,"directory":")" + directory +
                                  R"(","shard":{"rank":0,"file":")" + file +
                                  R"(","bytes":1,"checksum":")" + checksum + R"("}})")
        .ok();
  };
  EXPECT_TRUE(shard(fits, fits, std::string(64, 'c')));
  EXPECT_FALSE(shard(longer, "f", "c"));
  EXPECT_FALSE(shard("d", longer, "c"));
  EXPECT_FALSE(shard("d", "f", std::string(65, 'c')));
  EXPECT_FALSE(ParseTrainerReport(kJob, 2, 1,
                                  R"({"type":"resumed","step":1,"rejected":[{"directory":")" +
                                      longer + R"(","reason":"r"}]})")
                   .ok());
}

TEST(TrainerReports, AMalformedOrUnknownMessageIsAnError) {
  for (const char* json : {"", "{", "[]", R"({"type":"dance"})", R"({"type":"first_step"})",
                           R"({"type":"shard_written","step":1,"directory":"d","shard":3})"})
    EXPECT_EQ(ParseTrainerReport(kJob, 2, 1, json).status().code(), StatusCode::kInvalidArgument)
        << json;
}

}  // namespace
}  // namespace muster::worker
