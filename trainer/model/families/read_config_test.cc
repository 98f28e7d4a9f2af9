#include "trainer/model/families/read_config.h"
#include "common/base/testing/temp_dir.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A valid config of transformers 4 with `extra` members put last, so that they win.
std::string Config(const std::string& extra = "") {
  return R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 172, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": [2, 3],
    "hidden_act": "silu", "rope_scaling": null)" +
         (extra.empty() ? "" : ", " + extra) + "}";
}

TEST(ModelConfigTest, ReadsTransformers4) {
  const auto config = ParseModelConfig(Config(), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->intermediate_size, 172);
  EXPECT_EQ(config->num_hidden_layers, 2);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocab_size, 320);
  EXPECT_DOUBLE_EQ(config->rms_norm_eps, 1e-5);
  EXPECT_DOUBLE_EQ(config->rope_theta, 500000.0);
  EXPECT_EQ(config->torch_dtype, "bfloat16");
  EXPECT_EQ(config->bos_token_id, 1);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2, 3));
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_EQ(config->raw_json, Config());
}

TEST(ModelConfigTest, ReadsTransformers5) {
  const auto config = ParseModelConfig(
      R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 172,
          "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 320, "head_dim": 32,
          "rope_parameters": {"rope_theta": 1000000.0, "rope_type": "default"},
          "dtype": "float16", "eos_token_id": 7, "tie_word_embeddings": true})",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_DOUBLE_EQ(config->rope_theta, 1e6);
  EXPECT_EQ(config->torch_dtype, "float16");
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->num_key_value_heads, 4);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7));
  EXPECT_FALSE(config->bos_token_id.has_value());
}

TEST(ModelConfigTest, ReadsTheRopeScalingOfLlama31InBothForms) {
  const std::string numbers = R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3")";
  const RopeScaling expected{.factor = 8,
                             .low_freq_factor = 1,
                             .high_freq_factor = 4,
                             .original_max_position_embeddings = 8192};
  const auto old = ParseModelConfig(Config(R"("rope_scaling": {)" + numbers + "}"), "config.json");
  ASSERT_TRUE(old.ok()) << old.status().ToString();
  EXPECT_EQ(old->rope_scaling, expected);
  EXPECT_DOUBLE_EQ(old->rope_theta, 500000.0);
  const auto later = ParseModelConfig(
      Config(R"("rope_parameters": {"rope_theta": 1e6, )" + numbers + "}"), "config.json");
  ASSERT_TRUE(later.ok()) << later.status().ToString();
  EXPECT_EQ(later->rope_scaling, expected);
  EXPECT_DOUBLE_EQ(later->rope_theta, 1e6);
  EXPECT_FALSE(ParseModelConfig(Config(), "config.json")->rope_scaling.has_value());
}

TEST(ModelConfigTest, ReadsTheScalingsOfTransformers) {
  const auto read = [](const std::string& scaling) {
    const auto config = ParseModelConfig(Config(R"("rope_scaling": )" + scaling), "config.json");
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return *config;
  };
  const ModelConfig linear = read(R"({"type": "linear", "factor": 2})");
  EXPECT_EQ(linear.rope_scaling, (RopeScaling{.kind = RopeKind::kLinear, .factor = 2}));
  EXPECT_EQ(linear.ContextLength(), 8192);
  EXPECT_EQ(read(R"({"rope_type": "dynamic", "factor": 4})").ContextLength(), 16384);
  const ModelConfig yarn = read(R"({"rope_type": "yarn", "factor": 4, "beta_fast": 8,
      "truncate": false, "original_max_position_embeddings": 2048})");
  EXPECT_EQ(yarn.ContextLength(), 8192);
  EXPECT_EQ(yarn.rope_scaling->beta_fast, 8);
  EXPECT_FALSE(yarn.rope_scaling->truncate);
  EXPECT_DOUBLE_EQ(yarn.rope_scaling->attention_factor, 0.1 * std::log(4) + 1);
  EXPECT_DOUBLE_EQ(read(R"({"rope_type": "yarn", "factor": 4, "mscale": 2, "mscale_all_dim": 1})")
                       .rope_scaling->attention_factor,
                   (0.2 * std::log(4) + 1) / (0.1 * std::log(4) + 1));
  const ModelConfig given = read(R"({"rope_type": "yarn", "factor": 4, "attention_factor": 1.5})");
  EXPECT_EQ(given.rope_scaling->attention_factor, 1.5);
  EXPECT_EQ(given.rope_scaling->original_max_position_embeddings, 4096) << "those of the model";
}

// The number of positions before the scaling may stand beside it, and then counts.
TEST(ModelConfigTest, ReadsLongRope) {
  const auto config = ParseModelConfig(Config(R"("original_max_position_embeddings": 1024,
      "rope_scaling": {"rope_type": "longrope", "original_max_position_embeddings": 512,
        "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1, 2, 3, 4, 5, 6, 7, 8.5]})"),
                                       "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->rope_scaling->original_max_position_embeddings, 1024);
  EXPECT_EQ(config->rope_scaling->long_factors.back(), 8.5);
  EXPECT_DOUBLE_EQ(config->rope_scaling->attention_factor,
                   std::sqrt(1 + std::log(4.0) / std::log(1024.0)));
  EXPECT_EQ(config->ContextLength(), 4096);
}

TEST(ModelConfigTest, ReadsMistralWithAndWithoutItsWindow) {
  const std::string mistral = R"("architectures": ["MistralForCausalLM"], "model_type": "mistral")";
  const auto first = ParseModelConfig(Config(mistral + R"(, "sliding_window": 4096)"), "c");
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  EXPECT_EQ(first->architecture, "MistralForCausalLM");
  EXPECT_EQ(first->sliding_window, 4096);
  const auto later = ParseModelConfig(Config(mistral + R"(, "sliding_window": null)"), "c");
  ASSERT_TRUE(later.ok()) << later.status().ToString();
  EXPECT_FALSE(later->sliding_window.has_value());
}

// MistralConfig's defaults; a config.json that was cut or made by hand has them too.
TEST(ModelConfigTest, TellsAnAbsentKeyFromANullAsTransformersDoes) {
  const std::string mistral = R"("architectures": ["MistralForCausalLM"], "model_type": "mistral")";
  const auto absent = ParseModelConfig(Config(mistral), "c");
  ASSERT_TRUE(absent.ok()) << absent.status().ToString();
  EXPECT_EQ(absent->sliding_window, 4096);
  EXPECT_FALSE(ParseModelConfig(Config(), "c")->sliding_window.has_value()) << "of a Llama";
  for (const char* family : {"mistral", "qwen2", "qwen3", "llama"}) {
    const std::string extra = R"("architectures": [], "model_type": ")" + std::string(family) +
                              R"(", "num_key_value_heads": null)";
    const auto null = ParseModelConfig(Config(extra), "c");
    ASSERT_TRUE(null.ok()) << null.status().ToString();
    EXPECT_EQ(null->num_key_value_heads, 4) << family;
  }
}

TEST(ModelConfigTest, ReadsWhatDistinguishesTheFamiliesOfQwen) {
  const auto qwen2 =
      ParseModelConfig(Config(R"("architectures": ["Qwen2ForCausalLM"], "sliding_window": 128,
                "use_sliding_window": false, "layer_types": ["full_attention"])"),
                       "c");
  ASSERT_TRUE(qwen2.ok()) << qwen2.status().ToString();
  EXPECT_TRUE(qwen2->qkv_bias);
  EXPECT_EQ(qwen2->qk_norms, QkNorms::kNone);
  EXPECT_FALSE(qwen2->sliding_window.has_value()) << "it is not used";
  const auto qwen3 = ParseModelConfig(Config(R"("architectures": [], "model_type": "qwen3")"), "c");
  ASSERT_TRUE(qwen3.ok()) << qwen3.status().ToString();
  EXPECT_EQ(qwen3->architecture, "Qwen3ForCausalLM");
  EXPECT_FALSE(qwen3->qkv_bias);
  EXPECT_EQ(qwen3->qk_norms, QkNorms::kPerHead);
  EXPECT_EQ(qwen3->head_dim, 128) << "transformers' default, not hidden_size by heads";
}

TEST(ModelConfigTest, CountsParameters) {
  auto config = ParseModelConfig(Config(), "config.json");
  ASSERT_TRUE(config.ok());
  const std::int64_t block = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 172 * 64 + 2 * 64;
  EXPECT_EQ(config->ParameterCount(), 2 * 320 * 64 + 2 * block + 64);
  config->tie_word_embeddings = true;
  EXPECT_EQ(config->ParameterCount(), 320 * 64 + 2 * block + 64);
  config->qkv_bias = true;
  EXPECT_EQ(config->ParameterCount(), 320 * 64 + 2 * (block + 128) + 64);
  config->qk_norms = QkNorms::kPerHead;
  EXPECT_EQ(config->ParameterCount(), 320 * 64 + 2 * (block + 128 + 32) + 64);
}

TEST(ModelConfigTest, CountsTheNormsOfAllHeads) {
  const auto config =
      ParseModelConfig(Config(R"("architectures": ["Olmo2ForCausalLM"])"), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  const std::int64_t block = 2 * 64 * 64 + 2 * 32 * 64 + 3 * 172 * 64 + 2 * 64 + 64 + 32;
  EXPECT_EQ(config->ParameterCount(), 2 * 320 * 64 + 2 * block + 64);
}

struct BadConfig {
  const char* extra;  // wins over the valid config's member of the same name
  StatusCode code;
  const char* message;
};

class BadConfigTest : public ::testing::TestWithParam<BadConfig> {};

TEST_P(BadConfigTest, IsRefusedByName) {
  const auto config = ParseModelConfig(Config(GetParam().extra), "some/config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), GetParam().code);
  EXPECT_THAT(config.status().message(), HasSubstr(GetParam().message));
  EXPECT_THAT(config.status().message(), HasSubstr("some/config.json"));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadConfigTest,
    ::testing::Values(
        BadConfig{R"("architectures": ["GemmaForCausalLM"])", StatusCode::kUnimplemented,
                  "GemmaForCausalLM"},
        BadConfig{R"("architectures": ["Qwen2ForCausalLM"], "use_sliding_window": true)",
                  StatusCode::kUnimplemented, "sliding windows in some blocks"},
        BadConfig{R"("architectures": ["Qwen3ForCausalLM"],
                     "layer_types": ["full_attention", "sliding_attention"])",
                  StatusCode::kUnimplemented, "sliding windows in some blocks"},
        BadConfig{R"("architectures": ["Qwen3ForCausalLM"], "attention_bias": true)",
                  StatusCode::kUnimplemented, "attention_bias"},
        BadConfig{R"("architectures": ["MistralForCausalLM"], "sliding_window": 0)",
                  StatusCode::kInvalidArgument, "sliding_window is 0"},
        BadConfig{R"("architectures": [], "model_type": "gpt2")", StatusCode::kInvalidArgument,
                  "architectures"},
        BadConfig{R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})",
                  StatusCode::kInvalidArgument, "rope_scaling: low_freq_factor is missing"},
        BadConfig{R"("rope_scaling": {"rope_type": "llama3", "factor": 0.5, "low_freq_factor": 1,
                     "high_freq_factor": 4, "original_max_position_embeddings": 8192})",
                  StatusCode::kInvalidArgument, "rope_scaling: factor is below 1"},
        BadConfig{R"("rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 4,
                     "high_freq_factor": 4, "original_max_position_embeddings": 8192})",
                  StatusCode::kInvalidArgument, "is not below high_freq_factor"},
        BadConfig{R"("rope_scaling": 8)", StatusCode::kInvalidArgument,
                  "rope_scaling is no object"},
        BadConfig{R"("rope_scaling": {"type": "su", "factor": 2.0})", StatusCode::kUnimplemented,
                  "default, linear, dynamic, yarn"},
        BadConfig{R"("rope_scaling": {"type": "linear"})", StatusCode::kInvalidArgument,
                  "rope_scaling: factor is missing"},
        BadConfig{R"("rope_scaling": {"type": "dynamic", "factor": 0.5})",
                  StatusCode::kInvalidArgument, "factor is below 1"},
        BadConfig{R"("rope_scaling": {"type": "longrope", "short_factor": [1.0]})",
                  StatusCode::kInvalidArgument, "short_factor is no list of 8 numbers"},
        BadConfig{R"("rope_scaling": {"type": "yarn", "factor": 2, "beta_fast": -1})",
                  StatusCode::kInvalidArgument, "beta_fast"},
        BadConfig{R"("rope_scaling": {"factor": 2.0})", StatusCode::kUnimplemented, "factor"},
        BadConfig{R"("rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn"})",
                  StatusCode::kInvalidArgument, "rope_parameters: factor is missing"},
        BadConfig{R"("rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5})",
                  StatusCode::kUnimplemented, "partial_rotary_factor"},
        BadConfig{R"("rope_parameters": {"rope_theta": -1})", StatusCode::kInvalidArgument,
                  "rope_parameters: rope_theta"},
        BadConfig{R"("attention_bias": true)", StatusCode::kUnimplemented, "attention_bias"},
        BadConfig{R"("mlp_bias": true)", StatusCode::kUnimplemented, "mlp_bias"},
        BadConfig{R"("attention_dropout": 0.1)", StatusCode::kUnimplemented, "attention_dropout"},
        BadConfig{R"("partial_rotary_factor": 0.5)", StatusCode::kUnimplemented,
                  "partial_rotary_factor"},
        BadConfig{R"("hidden_act": "gelu")", StatusCode::kUnimplemented, "gelu"},
        BadConfig{R"("quantization_config": {"bits": 4})", StatusCode::kUnimplemented,
                  "quantization_config"},
        BadConfig{R"("torch_dtype": "int8")", StatusCode::kUnimplemented, "int8"},
        BadConfig{R"("hidden_size": null)", StatusCode::kInvalidArgument, "hidden_size is missing"},
        BadConfig{R"("hidden_size": 0)", StatusCode::kInvalidArgument, "hidden_size is 0"},
        BadConfig{R"("hidden_size": 64.5)", StatusCode::kInvalidArgument, "not an integer"},
        BadConfig{R"("vocab_size": -5)", StatusCode::kInvalidArgument, "vocab_size is -5"},
        BadConfig{R"("vocab_size": 18446744073709551615)", StatusCode::kInvalidArgument,
                  "vocab_size"},
        BadConfig{R"("num_hidden_layers": 100000000)", StatusCode::kInvalidArgument,
                  "num_hidden_layers"},
        BadConfig{R"("num_key_value_heads": 3)", StatusCode::kInvalidArgument,
                  "num_key_value_heads"},
        BadConfig{R"("hidden_size": 66)", StatusCode::kInvalidArgument, "num_attention_heads"},
        BadConfig{R"("head_dim": 15)", StatusCode::kInvalidArgument, "head_dim is 15"},
        BadConfig{R"("rms_norm_eps": 0)", StatusCode::kInvalidArgument, "rms_norm_eps"},
        BadConfig{R"("tie_word_embeddings": "yes")", StatusCode::kInvalidArgument,
                  "tie_word_embeddings"},
        BadConfig{R"("eos_token_id": "end")", StatusCode::kInvalidArgument, "eos_token_id"},
        BadConfig{R"("eos_token_id": 320)", StatusCode::kInvalidArgument, "vocab_size 320"},
        BadConfig{R"("bos_token_id": -7)", StatusCode::kInvalidArgument, "bos_token_id"},
        BadConfig{R"("eos_token_id": [5000000000])", StatusCode::kInvalidArgument,
                  "eos_token_id"}));

TEST(ModelConfigTest, AnotherVocabularyLeavesEverythingElseInPlace) {
  const auto text = WithVocabSize(R"({"z": 1.5, "vocab_size": 320, "a": [null, "\u00e9"]})", 384);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_EQ(*text,
            "{\n  \"z\": 1.5,\n  \"vocab_size\": 384,\n  \"a\": [\n    null,\n    "
            "\"\u00e9\"\n  ]\n}\n");
  EXPECT_EQ(ParseModelConfig(*WithVocabSize(Config(), 384), "c.json")->vocab_size, 384);
  EXPECT_FALSE(WithVocabSize("[]", 384).ok());
  EXPECT_FALSE(WithVocabSize(Config(), 0).ok());
}

TEST(ModelConfigTest, MalformedTextIsAnError) {
  for (const char* text : {"", "{", "[]", "{\"hidden_size\": }", "\xff"}) {
    const auto config = ParseModelConfig(text, "c.json");
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_THAT(config.status().message(), HasSubstr("c.json"));
  }
}

class ModelDirectoryTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) { dir_.Write(name, text); }

  const TempDirForTest dir_;
};

TEST_F(ModelDirectoryTest, AddsTheEndIdsOfTheGenerationConfig) {
  Write("config.json", Config());
  Write("generation_config.json", R"({"eos_token_id": [3, 9]})");
  const auto config = ReadModelConfig(dir_.path());
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2, 3, 9));
}

TEST_F(ModelDirectoryTest, AMissingFileSaysWhatADirectoryMustHold) {
  for (const std::string& dir : {dir_.path(), dir_ / "nowhere"}) {
    const auto config = ReadModelConfig(dir);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.status().code(), StatusCode::kNotFound);
    EXPECT_THAT(config.status().message(), HasSubstr(dir));
    EXPECT_THAT(config.status().message(), HasSubstr("tokenizer.json"));
  }
}

}  // namespace
}  // namespace muster
