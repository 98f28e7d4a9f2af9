// GeneratorTest: a small random model with the byte-level tokenizer, and what generates from it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "common/base/testing/temp_dir.h"
#include "trainer/formats/init_model.h"
#include "trainer/inputs/init_weights.h"
#include "trainer/verbs/text_generator.h"

namespace muster {

class GeneratorTest : public testing::Test {
 protected:
  void SetUp() override {
    ModelConfig config;
    config.hidden_size = 32;
    config.intermediate_size = 48;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 8;
    config.vocab_size = 320;
    config.max_position_embeddings = 200;
    ASSERT_TRUE(WriteModelFiles(dir_.path(), config).ok());
    ASSERT_TRUE(WriteRandomWeights(config, 3, dir_.path()).ok());
  }

  TextGenerator Load(const std::string& type = "float32") const {
    return std::move(TextGenerator::Load(dir_.path(), type).value());
  }
  static std::vector<std::int32_t> Ids(const TextGenerator& generator, const std::string& text) {
    return generator.tokenizer().Encode(text);
  }
  static bool Ignore(std::string_view) { return true; }

  TempDirForTest dir_;
};

}  // namespace muster
