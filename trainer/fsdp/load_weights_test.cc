#include "trainer/fsdp/load_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/base/host_peak.h"
#include "common/base/testing/temp_dir.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/state/checkpoint/testing/checkpoint_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr int kRanks = 3;
const std::vector<UnitSpec> kUnits = {{"embed", {{"embed", {53, 8}}}},
                                      {"head", {{"norm", {8}}, {"head", {53, 8}}}}};

float ValueOf(const std::string& tensor, std::int64_t i) {
  return static_cast<float>(tensor.size()) + 0.5F * static_cast<float>(i % 97);
}

class LoadWeightsTest : public ::testing::Test {
 protected:
  void WriteModel(const std::vector<TensorSpec>& tensors) {
    auto writer = SafetensorsWriter::Create(dir_.path() + "/model.safetensors", tensors);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    for (const TensorSpec& tensor : tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.count()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = ValueOf(tensor.name, static_cast<std::int64_t>(i));
      }
      ASSERT_TRUE(writer->AppendFloats(values.data(), tensor.count()).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    model_.emplace(*SafetensorsModel::Open(dir_.path()));
  }
  void WriteGoodModel() {
    WriteModel({{"embed", TensorType::kF32, {53, 8}},
                {"norm", TensorType::kBF16, {8}},
                {"head", TensorType::kF32, {53, 8}}});
  }

  // One array per unit, of the given type.
  struct Shard {
    std::vector<std::vector<char>> memory;
    std::vector<ShardArray> arrays;
  };
  static Shard ShardOf(const FlatLayout& layout, int rank, ElementType type) {
    Shard shard;
    for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
      const std::int64_t count = layout.units()[u].shard_count;
      shard.memory.emplace_back(static_cast<std::size_t>(count) * ElementSize(type));
      shard.arrays.push_back({layout.units()[u].name + "/weight", type, count,
                              shard.memory.back().data(), layout.ShardIntervals(u, rank)});
    }
    return shard;
  }
  static void ExpectLoaded(const Shard& shard) {
    for (const ShardArray& array : shard.arrays) {
      for (const TensorInterval& interval : array.intervals) {
        for (std::int64_t i = 0; i < interval.count; ++i) {
          double value = 0;
          ConvertElements(static_cast<const char*>(array.data) +
                              (interval.array_offset + i) * ElementSize(array.type),
                          array.type, &value, ElementType::kFloat64, 1);
          ASSERT_EQ(value, ValueOf(interval.tensor, interval.begin + i)) << interval.tensor;
        }
      }
    }
  }

  void EachRank(const std::function<void(int, Communicator&)>& body) {
    InProcessGroup group(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = group.Join(rank);
        const Deadline soon = Deadline::After(std::chrono::seconds(10));
        ASSERT_TRUE(communicator->Form({.rank = rank, .world_size = kRanks}, soon).ok());
        body(rank, *communicator);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const TempDirForTest dir_;
  std::optional<SafetensorsModel> model_;
};

TEST_F(LoadWeightsTest, EveryRankGetsItsIntervalsInTheTypeOfItsArrays) {
  WriteGoodModel();
  const FlatLayout layout(kUnits, kRanks);
  for (const ElementType type :
       {ElementType::kFloat32, ElementType::kFloat64, ElementType::kBFloat16}) {
    for (int rank = 0; rank < kRanks; ++rank) {
      const Shard shard = ShardOf(layout, rank, type);
      const Status loaded = LoadIntervals(*model_, shard.arrays);
      ASSERT_TRUE(loaded.ok()) << loaded.ToString();
      ExpectLoaded(shard);
    }
  }
}

// Rows of no file lie in the shard of the last rank, in one array or two.
TEST_F(LoadWeightsTest, RowsThatTheFilesLackAreTheirMeanOnEveryRank) {
  WriteGoodModel();
  for (const char* tensor : {"embed", "head"}) ASSERT_TRUE(model_->GrowRows(tensor, 64).ok());
  std::map<std::string, std::vector<double>> means;
  for (const char* tensor : {"embed", "head"}) {
    std::vector<double>& mean = means[tensor];
    mean.resize(8);
    for (std::int64_t i = 0; i < 53 * 8; ++i) {
      mean[static_cast<std::size_t>(i % 8)] += ValueOf(tensor, i) / 53.0;
    }
  }
  const FlatLayout layout(
      {{"embed", {{"embed", {64, 8}}}}, {"head", {{"norm", {8}}, {"head", {64, 8}}}}}, kRanks);
  std::atomic<int> of_mean = 0;
  for (const bool all_have_files : {true, false}) {
    EachRank([&](int rank, Communicator& communicator) {
      const Shard shard = ShardOf(layout, rank, ElementType::kFloat64);
      const SafetensorsModel* const model = all_have_files || rank == 1 ? &*model_ : nullptr;
      const Status loaded = LoadIntervalsTogether(model, layout, shard.arrays, communicator);
      ASSERT_TRUE(loaded.ok()) << loaded.ToString();
      for (const ShardArray& array : shard.arrays) {
        for (const TensorInterval& interval : array.intervals) {
          const auto* values = static_cast<const double*>(array.data) + interval.array_offset;
          for (std::int64_t i = 0; i < interval.count; ++i) {
            const std::int64_t at = interval.begin + i;
            const bool stored = interval.tensor == "norm" || at < 53 * 8;
            const double want = stored
                                    ? ValueOf(interval.tensor, at)
                                    : means.at(interval.tensor)[static_cast<std::size_t>(at % 8)];
            EXPECT_NEAR(values[i], want, 1e-5) << interval.tensor << " " << at;
            of_mean += !stored;
          }
        }
      }
    });
  }
  EXPECT_EQ(of_mean, 2 * 2 * 11 * 8);
}

TEST_F(LoadWeightsTest, LoadingShowsThatBytesArrive) {
  WriteModel({{"wide", TensorType::kBF16, {3, 1 << 20}}});
  const FlatLayout layout({{"unit", {{"wide", {3, 1 << 20}}}}}, 1);
  for (const ElementType type : {ElementType::kFloat32, ElementType::kBFloat16}) {
    const Shard shard = ShardOf(layout, 0, type);
    int moves = 0;
    ASSERT_TRUE(LoadIntervals(*model_, shard.arrays, {}, [&] { ++moves; }).ok());
    EXPECT_EQ(moves, 3) << "pieces of one tensor";
  }
}

TEST_F(LoadWeightsTest, RanksWithoutFilesGetThemFromTheFirstThatHasThem) {
  WriteGoodModel();
  const FlatLayout layout(kUnits, kRanks);
  for (const int reader : {0, 1}) {
    EachRank([&](int rank, Communicator& group) {
      const Shard shard = ShardOf(layout, rank, ElementType::kBFloat16);
      const Status loaded =
          LoadIntervalsTogether(rank == reader ? &*model_ : nullptr, layout, shard.arrays, group);
      ASSERT_TRUE(loaded.ok()) << loaded.ToString();
      ExpectLoaded(shard);
    });
  }
}

TEST_F(LoadWeightsTest, ArraysMayLieOnADevice) {
  WriteGoodModel();
  const FlatLayout layout(kUnits, kRanks);
  const ArrayMemory memory = testing::FakeDevice::memory();
  EachRank([&](int rank, Communicator& group) {
    for (const bool alone : {true, false}) {
      const Shard shard = ShardOf(layout, rank, ElementType::kFloat32);
      const auto hidden = testing::FakeDevice::Hide(shard.arrays);
      const Status loaded = alone ? LoadIntervals(*model_, hidden, memory)
                                  : LoadIntervalsTogether(rank == 0 ? &*model_ : nullptr, layout,
                                                          hidden, group, memory);
      ASSERT_TRUE(loaded.ok()) << loaded.ToString();
      ExpectLoaded(shard);
    }
  });
}

TEST_F(LoadWeightsTest, WhereAllHaveThemNobodySends) {
  WriteGoodModel();
  const FlatLayout layout(kUnits, kRanks);
  EachRank([&](int rank, Communicator& group) {
    const Shard shard = ShardOf(layout, rank, ElementType::kFloat32);
    ASSERT_TRUE(LoadIntervalsTogether(&*model_, layout, shard.arrays, group).ok());
    ExpectLoaded(shard);
    EXPECT_EQ(group.counters().enqueued, 3u) << "two questions, and the meeting of who is ready";
  });
}

TEST_F(LoadWeightsTest, AReaderThatFailsLeavesNobodyWaiting) {
  WriteModel({{"embed", TensorType::kF32, {53, 8}},
              {"norm", TensorType::kF32, {8}},
              {"head", TensorType::kF32, {8, 53}}});
  const FlatLayout layout(kUnits, kRanks);
  EachRank([&](int rank, Communicator& group) {
    const Shard shard = ShardOf(layout, rank, ElementType::kFloat32);
    const Status loaded =
        LoadIntervalsTogether(rank == 0 ? &*model_ : nullptr, layout, shard.arrays, group);
    if (rank == 0) {
      EXPECT_EQ(loaded.code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(loaded.message(), HasSubstr("tensor head is [8, 53] in the model's files"));
    } else {
      EXPECT_EQ(loaded.code(), StatusCode::kUnavailable);
      EXPECT_THAT(loaded.message(), HasSubstr("rank 0"));
    }
  });
}

TEST_F(LoadWeightsTest, ANumberThatIsNotFiniteIsRefusedByTensorAndFile) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> values(53 * 8, 1);
    values[300] = bad;
    auto file = SafetensorsWriter::Create(dir_.path() + "/model.safetensors",
                                          {{"embed", TensorType::kBF16, {53, 8}}});
    ASSERT_TRUE(file.ok() && file->AppendFloats(values.data(), 53 * 8).ok() && file->Finish().ok());
    model_.emplace(*SafetensorsModel::Open(dir_.path()));
    const FlatLayout layout({{"embed", {{"embed", {53, 8}}}}}, kRanks);
    EachRank([&](int rank, Communicator& group) {
      const Shard shard = ShardOf(layout, rank, ElementType::kFloat32);
      const Status own = LoadIntervals(*model_, shard.arrays);
      EXPECT_EQ(own.code(), rank == 1 ? StatusCode::kDataLoss : StatusCode::kOk) << bad;
      const Status all =
          LoadIntervalsTogether(rank == 0 ? &*model_ : nullptr, layout, shard.arrays, group);
      EXPECT_EQ(all.code(), rank == 0 ? StatusCode::kDataLoss : StatusCode::kUnavailable);
      if (rank == 2) return;
      EXPECT_THAT((rank == 0 ? all : own).message(),
                  HasSubstr("tensor embed of the model has a number that is not finite, in " +
                            dir_.path() + "/model.safetensors"));
    });
  }
}

TEST_F(LoadWeightsTest, WithoutAnyReaderAllAreTold) {
  const FlatLayout layout(kUnits, kRanks);
  EachRank([&](int, Communicator& group) {
    EXPECT_EQ(LoadIntervalsTogether(nullptr, layout, {}, group).code(), StatusCode::kNotFound);
  });
}

// The peak is the shard and a bounded buffer, however large the model is.
TEST_F(LoadWeightsTest, PeakIsTheShardAndLittleMore) {
  constexpr std::int64_t kRows = 8 << 10;
  WriteModel({{"large", TensorType::kBF16, {kRows, 1024}}});
  const FlatLayout layout({{"u", {{"large", {kRows, 1024}}}}}, 4);
  const Shard shard = ShardOf(layout, 2, ElementType::kBFloat16);
  const HostPeak peak;
  ASSERT_TRUE(LoadIntervals(*model_, shard.arrays).ok());
  if (!peak.of_stage()) GTEST_SKIP() << "the kernel does not let this process set the mark back";
  EXPECT_LT(peak.bytes() - peak.begin_bytes(), 8 << 20);
}

}  // namespace
}  // namespace muster
