#include "coordinator/history/metrics_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

constexpr std::size_t kLoss = static_cast<std::size_t>(Curve::kLoss);

std::string Line(Step step, double loss, Generation generation = 1) {
  return "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(loss) +
         ", \"step_seconds\": 0.25, \"tokens_per_second\": 100.5, \"generation\": " +
         std::to_string(generation) + "}\n";
}

class MetricsFileTest : public testing::Test {
 protected:
  std::string Write(const std::string& text) const {
    const std::string path = dir_ + "/metrics.jsonl";
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  const TempDirForTest temp_;
  const std::string dir_ = temp_.path();
};

TEST_F(MetricsFileTest, ReadsStepsAsTheyWereDoneLast) {
  std::string text;
  for (Step step = 1; step <= 20; ++step) text += Line(step, 1);
  for (Step step = 16; step <= 30; ++step) text += Line(step, 2, 2);
  const Result<StepCurves> curves = ReadMetricsFile(Write(text));
  ASSERT_TRUE(curves.ok()) << curves.status().ToString();
  ASSERT_EQ(curves->cells().size(), 30u);
  EXPECT_EQ(curves->cells()[14].ranges[kLoss].last, 1);
  EXPECT_EQ(curves->cells()[15].ranges[kLoss].last, 2);
  EXPECT_EQ(curves->cells()[0].ranges[static_cast<std::size_t>(Curve::kStepSeconds)].last, 0.25);
  EXPECT_FALSE(curves->cells()[0].ranges[static_cast<std::size_t>(Curve::kMemoryBytes)].known);
}

TEST_F(MetricsFileTest, SkipsWhatIsNoLineOfAStep) {
  const std::string text = "\n[1]\n{\"step\": \"x\"}\n{\"step\": 0}\nnonsense\n\xff\xfe\n" +
                           Line(1, 1) +
                           "{\"step\": 2, \"loss\": null, \"generation\": 1}\n{\"step\": 3, \"lo";
  const Result<StepCurves> curves = ReadMetricsFile(Write(text));
  ASSERT_TRUE(curves.ok());
  ASSERT_EQ(curves->cells().size(), 2u);
  EXPECT_FALSE(curves->cells()[1].ranges[kLoss].known);
}

TEST_F(MetricsFileTest, OfALargeFileEquallySpacedPiecesAreRead) {
  std::string text;
  for (Step step = 1; step <= 20000; ++step) text += Line(step, static_cast<double>(step));
  const Result<StepCurves> curves = ReadMetricsFile(Write(text), 512 << 10);
  ASSERT_TRUE(curves.ok());
  EXPECT_EQ(curves->cells().front().first, 1);
  EXPECT_EQ(curves->last_step(), 20000);
  EXPECT_GT(curves->cells().size(), 100u);
  for (const CurveCell& cell : curves->cells()) {
    EXPECT_EQ(cell.ranges[kLoss].least, static_cast<double>(cell.first));
    EXPECT_EQ(cell.ranges[kLoss].last, static_cast<double>(cell.last));
  }
}

TEST_F(MetricsFileTest, AMissingFileIsReported) {
  EXPECT_EQ(ReadMetricsFile(dir_ + "/none").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(ReadMetricsFile(dir_).status().code(), StatusCode::kNotFound);
}

TEST_F(MetricsFileTest, APipeIsNotWaitedFor) {
  const std::string path = dir_ + "/metrics.jsonl";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ReadMetricsFile(path).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace muster
