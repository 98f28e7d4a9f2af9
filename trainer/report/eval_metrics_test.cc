#include "trainer/report/eval_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "common/base/json.h"

namespace muster {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

EvalMetrics Metrics() {
  return {
      .step = 50,
      .max_steps = 200,
      .loss = 2.125,
      .perplexity = 8.373,
      .accuracy = 0.4521,
      .tokens = 99,
      .seconds = 1.25,
      .history = {.step = 50, .loss = 2.125, .best_step = 40, .best_loss = 2, .without_better = 1},
      .generation = 3,
      .world_size = 2};
}

TEST(EvalMetrics, AreALineOfJson) {
  const auto json = nlohmann::json::parse(EvalJson(Metrics()));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"step":50,"loss":2.125,"perplexity":8.373,
      "accuracy":0.4521,"tokens":99,"seconds":1.25,"best_step":40,"best_loss":2.0,
      "without_better":1,"generation":3,"world_size":2})"));
}

TEST(EvalMetrics, WhatIsNotFiniteIsNull) {
  EvalMetrics metrics = Metrics();
  metrics.loss = metrics.perplexity = std::numeric_limits<double>::quiet_NaN();
  metrics.history = {.step = 50};
  const auto json = nlohmann::json::parse(EvalJson(metrics));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_TRUE(json["perplexity"].is_null());
  EXPECT_TRUE(json["best_step"].is_null());
  EXPECT_TRUE(json["best_loss"].is_null());
}

TEST(EvalMetrics, PeopleSeeWhereTheBestIs) {
  EvalMetrics metrics = Metrics();
  EXPECT_THAT(EvalLine(metrics), HasSubstr("eval  50/200  loss   2.1250  perplexity    8.373"));
  EXPECT_THAT(EvalLine(metrics), HasSubstr("accuracy  45.2 %"));
  EXPECT_THAT(EvalLine(metrics), EndsWith("  best 2.0000 of step 40"));
  metrics.history.best_step = 50;
  EXPECT_THAT(EvalLine(metrics), EndsWith("  the best so far"));
}

TEST(EvalMetrics, ASampleIsALineOfJsonWhateverItsBytes) {
  const auto json = nlohmann::json::parse(SampleJson({.step = 5,
                                                      .prompt = "a\n\"b\"",
                                                      .text = "\xff!",
                                                      .tokens = 2,
                                                      .ended = true,
                                                      .generation = 1}));
  EXPECT_EQ(json["prompt"], "a\n\"b\"");
  EXPECT_EQ(json["text"], "\xef\xbf\xbd!");
  EXPECT_EQ(json["tokens"], 2);
  EXPECT_EQ(json["ended"], true);
}

}  // namespace
}  // namespace muster
