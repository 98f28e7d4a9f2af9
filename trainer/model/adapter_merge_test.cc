#include "trainer/model/adapter_merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>

#include "common/base/testing/temp_dir.h"
#include "trainer/model/adapters.h"

namespace muster {
namespace {

constexpr char kWeight[] = "model.layers.0.mlp.down_proj.weight";
constexpr char kPeftModule[] = "base_model.model.model.layers.0.mlp.down_proj";
constexpr std::int64_t kOut = 16, kIn = 40;
constexpr int kRank = 3;

ModelConfig Config() {
  ModelConfig config;
  config.hidden_size = kOut;
  config.intermediate_size = kIn;
  config.num_hidden_layers = 1;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 32;
  return config;
}

float ValueOf(const std::string& tensor, std::int64_t i) {
  const auto mixed = (i * 37 + static_cast<std::int64_t>(tensor.size())) % 101;
  return static_cast<float>(mixed - 50) / 64;
}

std::vector<float> ValuesOf(const std::string& tensor, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    values[static_cast<std::size_t>(i)] = ValueOf(tensor, i);
  }
  return values;
}

class AdapterMergeTest : public ::testing::Test {
 protected:
  void SetUp() override { WriteAdapter(0); }

  // `first`: what is added to the first value of each tensor.
  void WriteAdapter(float first) {
    LoraSpec lora;
    lora.r = kRank;
    lora.alpha = 5;
    lora.target_modules = {"down_proj"};
    dir_.Write(kAdapterConfig, AdapterConfigText(lora, "base"));
    std::vector<TensorSpec> tensors;
    for (const UnitSpec& unit : SplitModel(Config(), 1, lora).trained) {
      for (const UnitTensor& tensor : unit.tensors) {
        tensors.push_back({PeftName(tensor, lora), TensorType::kF32, tensor.shape});
      }
    }
    auto writer = SafetensorsWriter::Create(dir_ / kAdapterWeights, tensors);
    ASSERT_TRUE(writer.ok()) << writer.status().ToString();
    for (const TensorSpec& tensor : tensors) {
      std::vector<float> values = ValuesOf(tensor.name, tensor.count());
      values.front() += first;
      ASSERT_TRUE(writer->AppendFloats(values.data(), tensor.count()).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  }

  // Element (row, column) of W + scale B A, in double.
  static double Expected(const std::string& weight, std::int64_t row, std::int64_t column) {
    const std::string prefix = kPeftModule;
    double sum = 0;
    for (int k = 0; k < kRank; ++k) {
      sum += static_cast<double>(ValueOf(prefix + ".lora_B.weight", row * kRank + k)) *
             ValueOf(prefix + ".lora_A.weight", k * kIn + column);
    }
    return ValueOf(weight, row * kIn + column) + 5.0 / kRank * sum;
  }

  const TempDirForTest dir_;
};

// A merged model had them, and nothing was said.
TEST_F(AdapterMergeTest, NumbersThatAreNotFiniteAreRefusedByTheTensorsName) {
  WriteAdapter(std::numeric_limits<float>::infinity());
  const Status refused = AdapterMerge::Open(dir_.path(), Config()).status();
  EXPECT_EQ(refused.code(), StatusCode::kDataLoss);
  EXPECT_NE(refused.message().find("lora_A.weight has a number that is not finite"),
            std::string::npos)
      << refused.message();
}

// Readers ask for pieces that begin and end anywhere within rows.
TEST_F(AdapterMergeTest, PiecesOfAnySizeAreThoseOfTheWholeProduct) {
  const auto merge = AdapterMerge::Open(dir_.path(), Config());
  ASSERT_TRUE(merge.ok()) << merge.status().ToString();
  const std::string weight = kWeight;
  for (const std::int64_t piece : {std::int64_t{7}, kIn, kIn + 1, 3 * kIn - 5, kOut * kIn}) {
    std::vector<float> values = ValuesOf(weight, kOut * kIn);
    for (std::int64_t at = 0; at < kOut * kIn; at += piece) {
      merge->Apply(weight, at, std::min(piece, kOut * kIn - at), values.data() + at);
    }
    for (std::int64_t i = 0; i < kOut * kIn; ++i) {
      ASSERT_NEAR(values[static_cast<std::size_t>(i)], Expected(weight, i / kIn, i % kIn), 1e-5)
          << "element " << i << " in pieces of " << piece;
    }
  }
}

// Each expert gets its own rows of A and columns of B, gate and up the halves of the latter.
TEST(MergeOfExperts, IsThatOfPeftsParameters) {
  const TempDirForTest dir;
  ModelConfig config = Config();
  config.architecture = "MixtralForCausalLM";
  config.experts = {.count = 3, .per_token = 2, .intermediate_size = 7};
  LoraSpec lora;
  lora.r = 2;
  lora.alpha = 3;
  lora.target_modules = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  dir.Write(kAdapterConfig, AdapterConfigText(lora, "base"));
  std::map<std::string, at::Tensor> tensors;
  std::vector<TensorSpec> specs;
  for (const UnitSpec& unit : SplitModel(config, 1, lora).trained) {
    for (const UnitTensor& tensor : unit.tensors) {
      specs.push_back({PeftName(tensor, lora), TensorType::kF32, tensor.shape});
      tensors[tensor.name] = at::randn(tensor.shape);
    }
  }
  auto writer = SafetensorsWriter::Create(dir / kAdapterWeights, specs);
  ASSERT_TRUE(writer.ok()) << writer.status().ToString();
  for (const UnitSpec& unit : SplitModel(config, 1, lora).trained) {
    for (const UnitTensor& tensor : unit.tensors) {
      const at::Tensor& values = tensors.at(tensor.name);
      ASSERT_TRUE(writer->AppendFloats(values.data_ptr<float>(), values.numel()).ok());
    }
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto merge = AdapterMerge::Open(dir.path(), config);
  ASSERT_TRUE(merge.ok()) << merge.status().ToString();
  const auto delta = [&](const std::string& parameter) {
    const std::string path = "model.layers.0." + parameter;
    const at::Tensor a = tensors.at(path + ".lora_A.weight").view({3, 2, -1});
    const at::Tensor b = tensors.at(path + ".lora_B.weight").view({-1, 2, 3});
    return 1.5 * at::einsum("ore,eri->eoi", {b, a});
  };
  const at::Tensor gate_up = delta("mlp.experts.gate_up_proj"),
                   down = delta("mlp.experts.down_proj");
  for (std::int64_t e = 0; e < 3; ++e) {
    const std::string expert = "model.layers.0.block_sparse_moe.experts." + std::to_string(e) + ".";
    const auto expect = [&](const char* matrix, const at::Tensor& want) {
      at::Tensor got = at::zeros(want.sizes());
      merge->Apply(expert + matrix, 0, got.numel(), got.data_ptr<float>());
      EXPECT_LE((got - want).abs().max().item<double>(), 1e-5) << expert << matrix;
    };
    expect("w1.weight", gate_up[e].narrow(0, 0, 7));
    expect("w3.weight", gate_up[e].narrow(0, 7, 7));
    expect("w2.weight", down[e]);
  }
}

TEST_F(AdapterMergeTest, WhatHasNoAdapterStaysAsItIs) {
  const auto merge = AdapterMerge::Open(dir_.path(), Config());
  ASSERT_TRUE(merge.ok()) << merge.status().ToString();
  const std::string other = "model.layers.0.mlp.up_proj.weight";
  std::vector<float> values = ValuesOf(other, 64);
  merge->Apply(other, 5, 64, values.data());
  EXPECT_EQ(values, ValuesOf(other, 64));
}

}  // namespace
}  // namespace muster
