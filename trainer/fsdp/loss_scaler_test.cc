#include "trainer/fsdp/loss_scaler.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(LossScaler, InactiveStaysAtOneAndNeverExcusesAnOverflow) {
  LossScaler scaler(false);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(scaler.Overflowed(false));
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, HalvesAtAnOverflowAndDoublesAfterTwoThousandFiniteSteps) {
  LossScaler scaler(true);
  EXPECT_EQ(scaler.scale(), 65536);
  EXPECT_TRUE(scaler.Overflowed(false));
  EXPECT_EQ(scaler.scale(), 32768);
  for (int i = 0; i < 1999; ++i) EXPECT_FALSE(scaler.Overflowed(true));
  EXPECT_EQ(scaler.scale(), 32768);
  EXPECT_FALSE(scaler.Overflowed(true));
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(LossScaler, AnOverflowStartsTheRunOfFiniteStepsAgain) {
  LossScaler scaler(true);
  for (int i = 0; i < 1999; ++i) scaler.Overflowed(true);
  EXPECT_TRUE(scaler.Overflowed(false));
  EXPECT_FALSE(scaler.Overflowed(true));
  EXPECT_EQ(scaler.scale(), 32768);
}

TEST(LossScaler, BelowOneNothingIsLeftToHalve) {
  LossScaler scaler(true);
  for (int i = 0; i < 16; ++i) EXPECT_TRUE(scaler.Overflowed(false)) << i;
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(scaler.Overflowed(false));
}

TEST(LossScaler, ARestoredOneGoesOnWhereItWas) {
  LossScaler scaler(true);
  scaler.Restore(1024, 1999);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.Overflowed(true);
  EXPECT_EQ(scaler.scale(), 2048);
  LossScaler inactive(false);
  inactive.Restore(1024, 5);
  EXPECT_EQ(inactive.scale(), 1);
}

}  // namespace
}  // namespace muster
