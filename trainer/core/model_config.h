// ModelConfig: the shape of a decoder, as read from a Hugging Face directory's config.json.
//
// Four architectures: LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM;
// everything that would change the numbers and is not implemented (other rope scaling, other
// biases, another activation) is refused by name, never ignored.
//
// Plain value; any thread. The readers block on the file system.
// Errors: kNotFound for a missing directory or file, kInvalidArgument for a value that is wrong,
// kUnimplemented for one that this version does not act on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

// Llama 3.1's way to longer contexts ("rope_type": "llama3"): rotations that are slower than once
// in original / low_freq_factor positions are slowed down by `factor`, those that are faster than
// once in original / high_freq_factor stay, and between them it goes over smoothly. Source:
// transformers' modeling_rope_utils, llama3.
struct RopeScaling {
  double factor = 1;           // at least 1
  double low_freq_factor = 1;  // below high_freq_factor
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

struct ModelConfig {
  std::string architecture = "LlamaForCausalLM";
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;  // divides num_attention_heads
  std::int64_t head_dim = 0;             // even; hidden_size / num_attention_heads if not given
  std::int64_t vocab_size = 0;           // rows of the embedding; may exceed the tokenizer's
  double rms_norm_eps = 1e-6;
  double rope_theta = 10000.0;
  std::optional<RopeScaling> rope_scaling;
  bool qkv_bias = false;  // query, key and value projections have a bias (Qwen2)
  bool qk_norms = false;  // each head of query and key is normed before its rotation (Qwen3)
  bool tie_word_embeddings = false;
  std::int64_t max_position_embeddings = 2048;
  // Positions that attention looks back, its own included (Mistral); nothing: all.
  std::optional<std::int64_t> sliding_window;
  std::optional<std::int32_t> bos_token_id;
  // Where generation stops; the first one ends a training row. Those of generation_config.json
  // follow those of config.json.
  std::vector<std::int32_t> eos_token_ids;
  std::string torch_dtype = "float32";  // float32 | bfloat16 | float16: of the stored weights
  std::string raw_json;                 // config.json as read; empty for a preset

  // Elements of all weights; a tied head counts once.
  std::int64_t ParameterCount() const;
};

// Reads dir/config.json, and the end-of-text ids of dir/generation_config.json where it exists.
// Understands transformers 4 (rope_theta, torch_dtype) and 5 (rope_parameters, dtype).
Result<ModelConfig> ReadModelConfig(const std::string& dir);

// The same from a text; `origin` names it in errors.
Result<ModelConfig> ParseModelConfig(std::string_view json, const std::string& origin);

// A config.json with another vocab_size and everything else in its place.
Result<std::string> WithVocabSize(std::string_view json, std::int64_t vocab_size);

}  // namespace muster
