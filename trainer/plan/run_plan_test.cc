#include "trainer/plan/run_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "common/base/json.h"
#include "trainer/plan/testing/plan_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PlanQuestion Ask(ModelConfig model, int nodes, int ranks, const char* device) {
  return {.job = GpuJob(std::move(model), nodes, ranks), .hardware = *FindHardware(device)};
}

RunPlan Planned(const PlanQuestion& question) {
  const Result<RunPlan> plan = PlanRun(question);
  EXPECT_TRUE(plan.ok()) << plan.status().ToString();
  return plan.ok() ? *plan : RunPlan{};
}

std::string Words(const RunPlan& plan) {
  std::string words;
  for (const Suggestion& each : plan.suggestions) words += each.change + "\n";
  return words;
}

TEST(RunPlanTest, WhatFitsIsNotAdvised) {
  const RunPlan plan = Planned(Ask(Llama8B(), 1, 8, "H100-80"));
  EXPECT_TRUE(plan.fits());
  EXPECT_TRUE(plan.suggestions.empty());
}

TEST(RunPlanTest, EverySuggestionFits) {
  const PlanQuestion question = Ask(Llama70B(), 1, 8, "H100-80");
  const RunPlan plan = Planned(question);
  EXPECT_FALSE(plan.fits());
  ASSERT_FALSE(plan.suggestions.empty());
  for (const Suggestion& each : plan.suggestions) {
    EXPECT_LE(static_cast<double>(each.device_bytes), question.hardware.memory_bytes)
        << each.change;
    EXPECT_GT(each.hours_factor, 0) << each.change;
  }
  EXPECT_THAT(Words(plan), HasSubstr("train.fsdp.cpu_offload: true"));
  EXPECT_THAT(Words(plan), HasSubstr("resources.nodes: 4"));
  EXPECT_THAT(Words(plan), HasSubstr("train.lora: {r: 16}"));
}

// Neither of the two alone is enough for 16 ranks with 80 GB.
TEST(RunPlanTest, ChangesAreJoinedWhereNoneAloneIsEnough) {
  PlanQuestion question = Ask(Llama70B(), 2, 8, "A100-80");
  question.job.train.fsdp.activation_checkpointing = ActivationCheckpointing::kSelective;
  question.job.train.batch.per_rank = 4;
  const RunPlan plan = Planned(question);
  EXPECT_FALSE(plan.fits());
  EXPECT_THAT(Words(plan), HasSubstr("train.batch: {per_rank: 1, accumulation: 4}, "
                                     "train.fsdp.activation_checkpointing: full"));
}

TEST(RunPlanTest, AHostThatIsTooSmallIsSaid) {
  PlanQuestion question = Ask(Llama8B(), 1, 8, "H100-80");
  question.hardware.host_memory_bytes = 100e9;
  const RunPlan plan = Planned(question);
  EXPECT_TRUE(plan.device_fits);
  EXPECT_FALSE(plan.host_fits);
  EXPECT_THAT(PlanText(question, plan), HasSubstr("of 100.0 GB: does not fit"));
  question.hardware.host_memory_bytes = 250e9;
  EXPECT_THAT(Words(Planned(question)), HasSubstr("train.snapshot.every: 0"));
}

TEST(RunPlanTest, TheTextNamesPartsSpeedAndPeak) {
  PlanQuestion question = Ask(Llama8B(), 1, 8, "H100-80");
  question.cost_per_hour = 16;
  const RunPlan plan = Planned(question);
  const std::string text = PlanText(question, plan);
  EXPECT_THAT(text, HasSubstr("8.03 B parameters, 8 ranks on 1 node of 8, H100-80"));
  EXPECT_THAT(text, HasSubstr("master weights"));
  EXPECT_THAT(text, HasSubstr("fits"));
  EXPECT_THAT(text, Not(HasSubstr("does not fit")));
  EXPECT_THAT(text, HasSubstr("of 989 TFLOP/s (NVIDIA H100 data sheet"));
  EXPECT_THAT(text, HasSubstr("run: 1000 steps"));
  ASSERT_TRUE(plan.cost);
  EXPECT_NEAR(*plan.cost, 16 * *plan.time.hours, 1e-9);
}

TEST(RunPlanTest, TheMemoryTableHasItsNumbersInTheirColumns) {
  for (const char* device : {"cuda", "cpu"}) {
    PlanQuestion question = Ask(Llama8B(), 1, 8, "H100-80");
    question.job.resources.device = device;
    std::istringstream text(PlanText(question, Planned(question)));
    std::string line;
    while (std::getline(text, line) && !line.starts_with("per rank")) continue;
    const std::size_t last = line.size();  // where the last column's title ends
    int unsharded = 0;
    do {
      std::getline(text, line);
      EXPECT_EQ(line.find(" GB"), last) << line;
      unsharded += line.find("unsharded parameters") == std::string::npos ? 0 : 1;
    } while (!line.starts_with("  all ") && text);
    EXPECT_EQ(unsharded, 1) << "the longest name";
  }
}

TEST(RunPlanTest, ProgramsGetTheSameNumbers) {
  const PlanQuestion question = Ask(Llama70B(), 1, 8, "H100-80");
  const RunPlan plan = Planned(question);
  const nlohmann::json json = nlohmann::json::parse(PlanJson(question, plan));
  EXPECT_EQ(json["fits"], false);
  EXPECT_EQ(json["parameters"], plan.parameters);
  EXPECT_EQ(json["memory"]["device_bytes"], plan.memory.device_bytes);
  std::int64_t parts = 0;
  for (const auto& part : json["memory"]["parts"])
    parts += part["device_bytes"].get<std::int64_t>();
  EXPECT_EQ(parts, plan.memory.device_bytes);
  EXPECT_EQ(json["suggestions"].size(), plan.suggestions.size());
  EXPECT_TRUE(json["cost"].is_null());
}

}  // namespace
}  // namespace muster
