#include "common/telemetry/metrics.h"

#include <gtest/gtest.h>
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <array>
#include <limits>

namespace muster {
namespace {

TEST(Metrics, RendersEveryTypeInTheTextFormat) {
  MetricFamilies families;
  families.Gauge("muster_nodes", "Nodes by state.").Add({{"state", "ready"}}, 2);
  families.Counter("muster_restarts_total", "Restarts.").Add({}, 3);
  const std::array<double, 2> bounds = {0.5, 1};
  const std::array<std::uint64_t, 3> counts = {1, 2, 4};
  families.Histogram("muster_step_seconds", "Steps.")
      .AddHistogram({{"rank", "0"}}, bounds, counts, 9.5);
  EXPECT_EQ(families.Render(),
            "# HELP muster_nodes Nodes by state.\n"
            "# TYPE muster_nodes gauge\n"
            "muster_nodes{state=\"ready\"} 2\n"
            "# HELP muster_restarts_total Restarts.\n"
            "# TYPE muster_restarts_total counter\n"
            "muster_restarts_total 3\n"
            "# HELP muster_step_seconds Steps.\n"
            "# TYPE muster_step_seconds histogram\n"
            "muster_step_seconds_count{rank=\"0\"} 7\n"
            "muster_step_seconds_sum{rank=\"0\"} 9.5\n"
            "muster_step_seconds_bucket{rank=\"0\",le=\"0.5\"} 1\n"
            "muster_step_seconds_bucket{rank=\"0\",le=\"1\"} 3\n"
            "muster_step_seconds_bucket{rank=\"0\",le=\"+Inf\"} 7\n");
}

TEST(Metrics, OneNameIsOneFamilyAndAnEmptyOneIsLeftOut) {
  MetricFamilies families;
  families.Gauge("a", "A.").Add({{"n", "1"}}, 1);
  families.Gauge("empty", "E.");
  families.Gauge("a", "A.").Add({{"n", "2"}}, 2);
  EXPECT_EQ(families.Render(), "# HELP a A.\n# TYPE a gauge\na{n=\"1\"} 1\na{n=\"2\"} 2\n");
}

// Sixteen digits, of which a count up to 2^53 needs no more.
TEST(Metrics, NumbersKeepTheirDigits) {
  MetricFamilies families;
  auto& a = families.Gauge("a", "A.");
  a.Add({}, 0.1).Add({}, 1'700'000'000.25).Add({}, 3e20).Add({}, -0.5).Add({}, 9007199254740992.0);
  a.Add({}, 1.23456789e-06);
  a.Add({}, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(families.Render(),
            "# HELP a A.\n# TYPE a gauge\na 0.1\na 1700000000.25\na 3e+20\na -0.5\n"
            "a 9007199254740992\na 1.23456789e-06\na -Inf\n");
}

TEST(Metrics, LabelsCanBeAddedToThoseThatManyShare) {
  const MetricLabels rank = {{"run", "r"}, {"rank", "0"}};
  MetricFamilies families;
  families.Gauge("a", "A.").Add(rank.With("phase", "data"), 1).Add(rank, 2);
  EXPECT_EQ(families.Render(),
            "# HELP a A.\n# TYPE a gauge\n"
            "a{run=\"r\",rank=\"0\",phase=\"data\"} 1\na{run=\"r\",rank=\"0\"} 2\n");
}

TEST(Metrics, WhatARegistryCountsStandsInTheOrderOfItsLabels) {
  prometheus::Registry counted;
  auto& restarts =
      prometheus::BuildCounter().Name("restarts_total").Help("Restarts.").Register(counted);
  for (const char* cause : {"c", "a", "d", "b"}) restarts.Add({{"cause", cause}});
  restarts.Add({{"cause", "d"}}).Increment(3);
  MetricFamilies families;
  families.Append(counted);
  EXPECT_EQ(families.Render(),
            "# HELP restarts_total Restarts.\n# TYPE restarts_total counter\n"
            "restarts_total{cause=\"a\"} 0\nrestarts_total{cause=\"b\"} 0\n"
            "restarts_total{cause=\"c\"} 0\nrestarts_total{cause=\"d\"} 3\n");
}

TEST(Metrics, EscapesLabelValues) {
  MetricFamilies families;
  families.Gauge("a", "A.").Add({{"cause", "say \"no\"\n\\"}}, 1);
  EXPECT_NE(families.Render().find("cause=\"say \\\"no\\\"\\n\\\\\""), std::string::npos);
}

TEST(MetricsDeathTest, ABadNameAborts) {
  MetricFamilies families;
  EXPECT_DEATH(families.Gauge("a-b", ""), "metric name 'a-b'");
  EXPECT_DEATH(families.Gauge("a", "").Add({{"1x", ""}}, 1), "label name '1x'");
}

}  // namespace
}  // namespace muster
