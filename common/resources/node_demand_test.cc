#include "common/resources/node_demand.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(LabelRule, EachKindAllowsWhatItSays) {
  const std::map<std::string, std::string> labels = {{"pool", "a"}, {"ssd", ""}};
  using Kind = LabelRule::Kind;
  EXPECT_TRUE((LabelRule{"pool", Kind::kIn, {"a", "b"}}.Allows(labels)));
  EXPECT_FALSE((LabelRule{"pool", Kind::kIn, {"b"}}.Allows(labels)));
  EXPECT_FALSE((LabelRule{"zone", Kind::kIn, {"a"}}.Allows(labels)));
  EXPECT_FALSE((LabelRule{"pool", Kind::kNotIn, {"a"}}.Allows(labels)));
  EXPECT_TRUE((LabelRule{"pool", Kind::kNotIn, {"b"}}.Allows(labels)));
  EXPECT_TRUE((LabelRule{"zone", Kind::kNotIn, {"a"}}.Allows(labels))) << "it has no such label";
  EXPECT_TRUE((LabelRule{"ssd", Kind::kExists, {}}.Allows(labels)));
  EXPECT_FALSE((LabelRule{"zone", Kind::kExists, {}}.Allows(labels)));
  EXPECT_TRUE((LabelRule{"zone", Kind::kAbsent, {}}.Allows(labels)));
  EXPECT_FALSE((LabelRule{"ssd", Kind::kAbsent, {}}.Allows(labels)));
}

TEST(LabelRule, IsShownAsItIsMeant) {
  using Kind = LabelRule::Kind;
  EXPECT_EQ((LabelRule{"pool", Kind::kIn, {"a"}}.Text()), "pool=a");
  EXPECT_EQ((LabelRule{"pool", Kind::kIn, {"a", "b"}}.Text()), "pool in (a, b)");
  EXPECT_EQ((LabelRule{"pool", Kind::kNotIn, {"a"}}.Text()), "pool not in (a)");
  EXPECT_EQ((LabelRule{"pool", Kind::kExists, {}}.Text()), "pool");
  EXPECT_EQ((LabelRule{"pool", Kind::kAbsent, {}}.Text()), "no pool");
}

TEST(IsKind, AWordOfTheNameIsEnough) {
  EXPECT_TRUE(IsKind("NVIDIA H100 80GB HBM3", "H100"));
  EXPECT_TRUE(IsKind("NVIDIA H100 80GB HBM3", "nvidia h100 80gb hbm3"));
  EXPECT_TRUE(IsKind("NVIDIA A100-SXM4-80GB", "a100"));
  EXPECT_FALSE(IsKind("NVIDIA H100 80GB HBM3", "H10"));
  EXPECT_FALSE(IsKind("NVIDIA A100-SXM4-80GB", "A10"));
  EXPECT_FALSE(IsKind("", "H100"));
}

TEST(NodeDemand, CountsForAllRanksOfTheNode) {
  const NodeDemand demand{
      .ranks = 4, .devices = {.per_rank = 2}, .cpus_per_rank = 3, .memory_per_rank = 5};
  EXPECT_EQ(demand.device_count(), 8);
  EXPECT_EQ(demand.cpus(), 12);
  EXPECT_EQ(demand.memory_bytes(), 20u);
}

}  // namespace
}  // namespace muster
