#include "trainer/fsdp/adapter_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <thread>

#include "common/base/testing/temp_dir.h"
#include "trainer/comm/group/testing/in_process_communicator.h"
#include "trainer/model/adapters.h"
#include "trainer/model/peft.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kRanks = 3;

ModelConfig Config(std::int64_t layers, std::int64_t intermediate) {
  ModelConfig config;
  config.hidden_size = 16;
  config.intermediate_size = intermediate;
  config.num_hidden_layers = layers;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 32;
  return config;
}

LoraSpec Lora(int r) {
  LoraSpec spec;
  spec.r = r;
  spec.alpha = 2 * r;
  spec.target_modules = {"q_proj", "down_proj"};
  return spec;
}

std::vector<UnitSpec> TrainedUnits(const ModelConfig& config, const LoraSpec& lora) {
  std::vector<UnitSpec> units;
  for (const UnitSpec& unit : SplitModel(config, 1, lora).trained) {
    if (!unit.tensors.empty()) units.push_back(unit);
  }
  return units;
}

float ValueOf(const std::string& tensor, std::int64_t i) {
  return static_cast<float>(tensor.size()) + 0.25F * static_cast<float>(i);
}

class AdapterWeightsTest : public ::testing::Test {
 protected:
  // A directory as PEFT writes it.
  std::string WriteAdapter(const std::string& name, const ModelConfig& config, const LoraSpec& lora,
                           float factor = 1) {
    const std::string dir = dir_ / name;
    std::filesystem::create_directories(dir);
    dir_.Write(name + "/" + kAdapterConfig, AdapterConfigText(lora, "base"));
    std::vector<TensorSpec> tensors;
    for (const UnitSpec& unit : TrainedUnits(config, lora)) {
      for (const UnitTensor& tensor : unit.tensors) {
        tensors.push_back({PeftName(tensor, lora), TensorType::kF32, tensor.shape});
      }
    }
    auto writer = SafetensorsWriter::Create(dir + "/" + kAdapterWeights, tensors);
    EXPECT_TRUE(writer.ok()) << writer.status().ToString();
    for (const TensorSpec& tensor : tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.count()));
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = factor * ValueOf(tensor.name, static_cast<std::int64_t>(i));
      }
      EXPECT_TRUE(writer->AppendFloats(values.data(), tensor.count()).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    return dir;
  }

  // Each rank's status of loading `dirs[rank]` into a model of two blocks; what is loaded is right.
  std::vector<Status> Load(const std::vector<std::string>& dirs) {
    std::vector<Status> statuses(kRanks);
    InProcessGroup group(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const auto communicator = group.Join(rank);
        const Deadline soon = Deadline::After(std::chrono::seconds(10));
        ASSERT_TRUE(communicator->Form({.rank = rank, .world_size = kRanks}, soon).ok());
        statuses[static_cast<std::size_t>(rank)] =
            LoadShard(dirs[static_cast<std::size_t>(rank)], rank, *communicator);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  const TempDirForTest dir_;
  const ModelConfig config_ = Config(2, 24);

 private:
  Status LoadShard(const std::string& dir, int rank, Communicator& group) const {
    const FlatLayout layout(TrainedUnits(config_, Lora(2)), kRanks);
    std::vector<std::vector<float>> values;
    std::vector<ShardArray> arrays;
    for (int u = 0; u < static_cast<int>(layout.units().size()); ++u) {
      const FlatUnit& unit = layout.units()[static_cast<std::size_t>(u)];
      values.emplace_back(static_cast<std::size_t>(unit.shard_count));
      arrays.push_back({unit.name + "/weight", ElementType::kFloat32, unit.shard_count,
                        values.back().data(), layout.ShardIntervals(u, rank)});
    }
    const ArrayMemory memory;
    const Status status = LoadAdapter(dir, Lora(2), {layout, arrays, memory}, group, [] {});
    if (status.ok()) ExpectLoaded(arrays);
    return status;
  }
  static void ExpectLoaded(const std::vector<ShardArray>& arrays) {
    for (const ShardArray& array : arrays) {
      for (const TensorInterval& interval : array.intervals) {
        const float* values = static_cast<const float*>(array.data) + interval.array_offset;
        for (std::int64_t i = 0; i < interval.count; ++i) {
          ASSERT_EQ(values[i], ValueOf("base_model.model." + interval.tensor, interval.begin + i))
              << interval.tensor;
        }
      }
    }
  }
};

TEST_F(AdapterWeightsTest, RanksWithoutTheDirectoryGetItFromTheOthers) {
  const std::string dir = WriteAdapter("good", config_, Lora(2));
  for (const Status& status : Load({dir, dir_ / "nowhere", dir})) {
    EXPECT_TRUE(status.ok()) << status.ToString();
  }
  for (const Status& status : Load({dir_ / "a", dir_ / "b", dir_ / "c"})) {
    EXPECT_EQ(status.code(), StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(kAdapterConfig));
  }
}

// It has the widths of the model, and eight tensors more.
TEST_F(AdapterWeightsTest, AnAdapterOfMoreBlocksIsNotCut) {
  const std::string dir = WriteAdapter("deep", Config(4, 24), Lora(2));
  for (const Status& status : Load({dir, dir, dir})) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), AllOf(HasSubstr(dir + "/" + kAdapterWeights),
                                        HasSubstr("belongs to nothing of this model")));
  }
}

TEST_F(AdapterWeightsTest, WhatIsWrongWithAnAdapterNamesItsFile) {
  const std::string wide = WriteAdapter("wide", Config(2, 40), Lora(2));
  const std::string shallow = WriteAdapter("shallow", Config(1, 24), Lora(2));
  for (const auto& [dir, words] : {std::pair(wide, ", an adapter of this model has "),
                                   std::pair(shallow, " has no tensor ")}) {
    const std::vector<Status> statuses = Load({dir, dir, dir});
    EXPECT_EQ(statuses[0].code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(statuses[0].message(),
                AllOf(HasSubstr(dir + "/" + kAdapterWeights), HasSubstr(words)));
  }
}

// Each rank took its part from its own copy, and two adapters became one.
TEST_F(AdapterWeightsTest, CopiesWithOtherValuesAreRefused) {
  const std::string dir = WriteAdapter("good", config_, Lora(2));
  const std::string other = WriteAdapter("other", config_, Lora(2), 2);
  for (const Status& status : Load({dir, other, dir})) {
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("is not the same on all ranks"));
  }
}

TEST_F(AdapterWeightsTest, ACopyOfAnotherFormIsNotPassedOver) {
  const std::string good = WriteAdapter("good", config_, Lora(2));
  const std::string other = WriteAdapter("other", config_, Lora(4));
  const std::vector<Status> statuses = Load({good, other, good});
  EXPECT_EQ(statuses[1].code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(statuses[1].message(), HasSubstr("r is 4, the job's lora has 2"));
  for (const int rank : {0, 2}) {
    const Status& status = statuses[static_cast<std::size_t>(rank)];
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), HasSubstr("rank 1"));
  }
}

}  // namespace
}  // namespace muster
