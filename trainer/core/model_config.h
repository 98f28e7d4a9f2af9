// ModelConfig: the shape of a decoder, as a Hugging Face directory's config.json states it
// (trainer/model/families reads it).
//
// Plain value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster {

// How rotations are slowed down for contexts longer than those of pretraining ("rope_type"). Source
// of all formulas: transformers' modeling_rope_utils.
enum class RopeKind {
  // Llama 3.1: rotations slower than once in original / low_freq_factor positions are slowed down
  // by
  // `factor`, those faster than once in original / high_freq_factor stay, and between them it goes
  // over smoothly.
  kLlama3,
  kLinear,    // all by `factor`
  kDynamic,   // by as much as a document is longer than max_position_embeddings (NTK)
  kYarn,      // those slower than beta_slow turns in original positions; above beta_fast none
  kLongRope,  // each by its own factor: of a document that is longer than original another one
};

struct RopeScaling {
  RopeKind kind = RopeKind::kLlama3;
  double factor = 1;           // at least 1
  double low_freq_factor = 1;  // below high_freq_factor
  double high_freq_factor = 4;
  std::int64_t original_max_position_embeddings = 8192;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;         // the range between the two to whole elements
  double attention_factor = 1;  // on cosines and sines: of YaRN and LongRoPE
  // A factor for each frequency: in documents of up to original positions, and in longer ones.
  std::vector<double> short_factors = {};
  std::vector<double> long_factors = {};

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

// What of query and key is normed before the rotation.
enum class QkNorms {
  kNone,
  kPerHead,   // each head over its own root mean square, one weight [head_dim] (Qwen3)
  kAllHeads,  // all heads together, a weight as wide as the projection (OLMo 2)
};

// Where the norms of a block's two halves are: x + f(norm(x)), x + norm(f(x)) (OLMo 2), or
// x + norm(f(norm(x))) with two norms each (Gemma).
enum class NormPlacement { kBefore, kAfter, kBoth };

// What the gate of a feed-forward layer goes through.
enum class Activation {
  kSilu,
  kGeluTanh,  // GELU in its approximation by tanh
};

// What sets attention apart beside the shapes of its heads.
struct AttentionForm {
  double cap = 0;  // a scaled score s counts as cap * tanh(s / cap); 0: as s
  // By layer: those that have no window, whatever sliding_window says; empty: none of them.
  std::vector<bool> full_layers = {};
  // Base of the rotations in layers with a window, where these have another one, without scaling.
  std::optional<double> window_rope_theta = {};
  // Each head has one more score, a weight, whose share of attention goes nowhere (gpt-oss).
  bool sinks = false;
};

// A gated activation with bounds, (up + 1) * gate * sigmoid(alpha * gate), where gate is at most
// `limit` and up between -limit and limit (gpt-oss).
struct ClampedSwiGluForm {
  double limit = 7;
  double alpha = 1.702;
};

// A feed-forward layer that is a choice among several (mixture of experts): a router gives each
// token its most likely experts, whose outputs are added up with weights.
struct ExpertsConfig {
  std::int64_t count = 0;              // of a sparse layer
  std::int64_t per_token = 0;          // that a token is given, at most `count`
  std::int64_t intermediate_size = 0;  // of each expert
  // Of one more feed-forward that all tokens go through, whose output has a gate of its own
  // (Qwen2-MoE); 0: there is none.
  std::int64_t shared_intermediate_size = 0;
  bool normalizes_weights = false;  // a token's weights add up to 1
  // On the loss that punishes uneven loads, where training has one; else 0.
  double balance_coefficient = 0;
  bool biases = false;  // of the router, and of each expert's matrices
  // The experts of the largest logits are taken, not those of the largest probabilities: where two
  // probabilities are rounded to one, these may be others.
  bool picks_by_logit = false;
  // In place of silu(gate) * up. Rows of gate and of up take turns in an expert's matrix then.
  std::optional<ClampedSwiGluForm> clamped = {};
  std::vector<bool> sparse_layers = {};  // by layer; empty: every one is
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
  // Only the first elements of a head rotate, so large a part of it (Phi-3).
  double partial_rotary_factor = 1;
  bool qkv_bias = false;     // query, key and value projections have a bias (Qwen2)
  bool output_bias = false;  // and so has that of attention's output
  QkNorms qk_norms = QkNorms::kNone;
  NormPlacement norm_placement = NormPlacement::kBefore;
  bool zero_centered_norms = false;  // a norm's weight w multiplies by 1 + w
  Activation activation = Activation::kSilu;
  double logit_cap = 0;  // a logit x counts as cap * tanh(x / cap); 0: as x
  AttentionForm attention;
  // Whether each layer rotates query and key; empty: every one does (SmolLM3: some do not).
  std::vector<bool> rotating_layers;
  std::optional<ExpertsConfig> experts;  // nothing: every layer is dense
  // On embeddings, on scores in place of 1 / sqrt(head_dim) (0: that), on what each half of a block
  // adds to the stream, where norms are before alone; logits are divided by the last one (Granite).
  double embedding_multiplier = 1;
  bool rounds_embedding_multiplier = false;  // to the weights' type, before it multiplies (Gemma)
  double attention_multiplier = 0;
  double residual_multiplier = 1;
  double logits_scaling = 1;
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

  bool Rotates(std::int64_t layer) const {
    return rotating_layers.empty() || rotating_layers[static_cast<std::size_t>(layer)];
  }
  // Elements of a head that rotate, as the angles' exponents count them, and pairs of them: an odd
  // number is rounded up.
  std::int64_t rotary_dim() const {
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
  std::int64_t rotary_half() const { return (rotary_dim() + 1) / 2; }
  // Positions that a text may have: beyond max_position_embeddings where that is the length before
  // a scaling.
  std::int64_t ContextLength() const;
  // Whether the layer's feed-forward is a mixture of experts.
  bool IsSparse(std::int64_t layer) const {
    return experts && (experts->sparse_layers.empty() ||
                       experts->sparse_layers[static_cast<std::size_t>(layer)]);
  }
  std::optional<std::int64_t> WindowOf(std::int64_t layer) const {
    const std::vector<bool>& full = attention.full_layers;
    const bool has_none = !full.empty() && full[static_cast<std::size_t>(layer)];
    return has_none ? std::nullopt : sliding_window;
  }
  std::int64_t SparseLayers() const;
  // Elements of all weights; a tied head counts once.
  std::int64_t ParameterCount() const;
  // Elements that a token is multiplied with: a mixture counts with its `per_token` experts alone.
  std::int64_t ActiveParameterCount() const;
};

}  // namespace muster
