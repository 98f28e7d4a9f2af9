#include "trainer/report/metrics_log.h"
#include "common/base/testing/temp_dir.h"

#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "common/base/files.h"
#include "common/base/json.h"
#include "trainer/report/run_logs.h"

namespace muster {
namespace {

class MetricsLogTest : public testing::Test {
 protected:
  std::string path() const { return dir_ / "metrics.jsonl"; }

 private:
  const TempDirForTest dir_;
};

TEST_F(MetricsLogTest, EachStepIsOneObject) {
  Result<MetricsLog> log = MetricsLog::Open(path());
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE(log->Append({.step = 1, .loss = 2.5, .sample_chain = 0xab}).ok());
  ASSERT_TRUE(log->Append({.step = 2, .generation = 3, .world_size = 4}).ok());
  std::ifstream in(path());
  std::string first, second, rest;
  std::getline(in, first);
  std::getline(in, second);
  EXPECT_FALSE(std::getline(in, rest));
  const auto json = nlohmann::json::parse(first);
  EXPECT_EQ(json["step"], 1);
  EXPECT_EQ(json["loss"], 2.5);
  EXPECT_EQ(json["sample_chain"], "00000000000000ab");
  for (const char* key : {"grad_norm", "lr", "tokens", "samples", "step_seconds",
                          "tokens_per_second", "generation", "world_size", "epoch"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_EQ(nlohmann::json::parse(second)["generation"], 3);
}

TEST_F(MetricsLogTest, ATornLastLineIsRemoved) {
  for (const char* before : {"{\"step\":1}\n{\"st", "{\"step\":1}\n", "{\"st", ""}) {
    std::ofstream(path()) << before;
    Result<MetricsLog> log = MetricsLog::Open(path());
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE(log->Append({.step = 2}).ok());
    std::ifstream in(path());
    std::string last;
    for (std::string line; std::getline(in, line); last = line) {
      EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    }
    EXPECT_EQ(nlohmann::json::parse(last)["step"], 2);
  }
}

TEST_F(MetricsLogTest, ASecondRunInTheSameDirectoryIsRefusedUntilTheFirstEnds) {
  std::optional<Result<MetricsLog>> first(MetricsLog::Open(path()));
  ASSERT_TRUE((*first)->Append({.step = 1}).ok());
  EXPECT_TRUE(MetricsLog::Open(path(), MetricsLock::kNone).ok());  // the next generation
  const Result<MetricsLog> second = MetricsLog::Open(path());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status().message().find("two runs in one train.output.dir"), std::string::npos);
  first.reset();
  EXPECT_TRUE(MetricsLog::Open(path()).ok());
}

TEST_F(MetricsLogTest, AMissingDirectoryIsNamed) {
  const Result<MetricsLog> log = MetricsLog::Open(path() + "/no/metrics.jsonl");
  ASSERT_FALSE(log.ok());
  EXPECT_NE(log.status().message().find("/no/metrics.jsonl"), std::string::npos);
}

TEST(ProgressLine, SaysWhereTheJobStands) {
  const std::string line = ProgressLine({.step = 25,
                                         .max_steps = 200,
                                         .loss = 4.1234,
                                         .grad_norm = 1.5,
                                         .lr = 4.9e-5,
                                         .tokens_per_second = 12345,
                                         .rss_bytes = 3ull << 29},
                                        0.5);
  EXPECT_EQ(line,
            "step  25/200  loss   4.1234  grad    1.500  lr 4.90e-05     12345 tok/s   1.50 GiB  "
            "ETA 1:28");
}

TEST(ProgressLine, TheMemoryIsThatOfTheGpuWhereThereIsOne) {
  const StepMetrics metrics{.step = 1,
                            .max_steps = 9,
                            .rss_bytes = 3ull << 29,
                            .device_bytes = 5ull << 30,
                            .device_capacity_bytes = 8ull << 30};
  EXPECT_NE(ProgressLine(metrics, 1.0).find("  5.00 GiB  "), std::string::npos);
  EXPECT_NE(MetricsJson(metrics).find("\"device_bytes\":5368709120"), std::string::npos);
  EXPECT_NE(MetricsJson({.step = 1}).find("\"device_bytes\":null"), std::string::npos);
}

TEST(MetricsJson, HasTheLoadsOfExpertsByLayer) {
  ModelConfig config;
  config.num_hidden_layers = 2;
  config.experts = {.count = 2, .per_token = 1, .sparse_layers = {false, true}};
  const StepMetrics metrics{.step = 1,
                            .experts = std::make_shared<ExpertLoad>(MeasureLoad(config, {3, 1}))};
  const auto load = nlohmann::json::parse(MetricsJson(metrics))["experts"];
  EXPECT_EQ(load["layers"], (std::vector<int>{1}));
  EXPECT_EQ(load["largest_share"], (std::vector<double>{0.75}));
  EXPECT_EQ(load["smallest_share"], (std::vector<double>{0.25}));
  EXPECT_EQ(load["idle"], (std::vector<int>{0}));
  EXPECT_EQ(load["entropy"].size(), 1u);
  EXPECT_FALSE(nlohmann::json::parse(MetricsJson({.step = 1})).contains("experts"));
}

TEST(RunLogs, HasTheShareOfEachExpertEverySoManySteps) {
  const TempDirForTest dir;
  ModelConfig config;
  config.num_hidden_layers = 1;
  config.experts = {.count = 2, .per_token = 1};
  const auto load = std::make_shared<ExpertLoad>(MeasureLoad(config, {3, 1}));
  auto logs = RunLogs::Open(dir.path(), {.experts_every = 2});
  ASSERT_TRUE(logs.ok()) << logs.status().ToString();
  for (Step step = 1; step <= 5; ++step)
    ASSERT_TRUE(logs->Write({.step = step, .max_steps = 5, .experts = load}).ok());
  std::ifstream in(dir / "experts.jsonl");
  std::vector<Step> steps;
  for (std::string line; std::getline(in, line);)
    steps.push_back(nlohmann::json::parse(line)["step"]);
  EXPECT_EQ(steps, (std::vector<Step>{2, 4, 5}));
}

TEST(ProgressLine, SaysWhatShareOfThePeakIsUsedWhereItIsKnown) {
  EXPECT_NE(ProgressLine({.step = 1, .max_steps = 9, .mfu = 0.4321}, 1.0).find("  MFU 43.2 %  "),
            std::string::npos);
  EXPECT_NE(MetricsJson({.step = 1, .mfu = 0.25}).find("\"mfu\":0.25"), std::string::npos);
  EXPECT_NE(MetricsJson({.step = 1}).find("\"mfu\":null"), std::string::npos);
}

TEST(ProgressLine, AStepThatWasLeftOutIsMarked) {
  EXPECT_TRUE(ProgressLine({.step = 1, .max_steps = 9, .skipped = true}, 1.0).ends_with("skipped"));
  EXPECT_NE(MetricsJson({.step = 1, .skipped = true}).find("\"skipped\":true"), std::string::npos);
}

TEST(ProgressLine, LongWaitsHaveHours) {
  const std::string line = ProgressLine({.step = 0, .max_steps = 1000}, 10.0);
  EXPECT_NE(line.find("ETA 2:46:40"), std::string::npos) << line;
}

}  // namespace
}  // namespace muster
