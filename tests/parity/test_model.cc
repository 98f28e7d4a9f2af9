#include "tests/parity/test_model.h"

#include <ATen/ATen.h>

#include <cmath>
#include <random>

#include "common/base/check.h"
#include "trainer/formats/stored_tensor.h"
#include "trainer/model/adapters.h"
#include "trainer/model/families/units.h"
#include "trainer/model/stored_model.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/cpu/nf4_tensor.h"
#include "trainer/ops/device_ops.h"

namespace muster::parity {
namespace {

MicroBatch RandomBatch(const ModelConfig& config, std::mt19937_64& random, bool with_labels) {
  MicroBatch batch;
  batch.rows = 2;
  batch.length = 5 + static_cast<std::int64_t>(random() % 9);
  for (std::int64_t i = 0; i < batch.rows * batch.length; ++i) {
    batch.input_ids.push_back(static_cast<std::int64_t>(random() % config.vocab_size));
    const bool trained = with_labels && random() % 3 != 0;
    batch.labels.push_back(trained ? static_cast<std::int64_t>(random() % config.vocab_size)
                                   : kIgnoredLabel);
    batch.label_count += trained;
  }
  return batch;
}

const char* ArchitectureOf(Family family) {
  switch (family) {
    case Family::kLlama: return "LlamaForCausalLM";
    case Family::kMistral: return "MistralForCausalLM";
    case Family::kQwen2: return "Qwen2ForCausalLM";
    case Family::kQwen3: return "Qwen3ForCausalLM";
    case Family::kSmolLm3: return "SmolLM3ForCausalLM";
    case Family::kOlmo2: return "Olmo2ForCausalLM";
    case Family::kQwen2Moe: return "Qwen2MoeForCausalLM";
    case Family::kQwen3Moe: return "Qwen3MoeForCausalLM";
    case Family::kOlmoe: return "OlmoeForCausalLM";
    case Family::kMixtral: return "MixtralForCausalLM";
    case Family::kGranite: return "GraniteForCausalLM";
    case Family::kPhi3: return "Phi3ForCausalLM";
    case Family::kGemma2: return "Gemma2ForCausalLM";
    case Family::kGemma3: return "Gemma3ForCausalLM";
    case Family::kGptOss: return "GptOssForCausalLM";
  }
  return "";
}

}  // namespace

namespace {

// Of a Qwen every third layer is dense, and the balance of experts is trained.
void SetExperts(const TestModelOptions& options, ModelConfig& config) {
  ExpertsConfig experts{.count = 5, .per_token = 2, .intermediate_size = 28};
  switch (options.family) {
    case Family::kQwen3Moe:
      config.qk_norms = QkNorms::kPerHead;
      experts.normalizes_weights = true;
      experts.balance_coefficient = 0.3;
      for (int b = 0; b < options.blocks; ++b) experts.sparse_layers.push_back(b % 3 != 1);
      break;
    case Family::kQwen2Moe:
      config.qkv_bias = true;
      experts.shared_intermediate_size = 36;
      experts.balance_coefficient = 0.3;
      for (int b = 0; b < options.blocks; ++b) experts.sparse_layers.push_back(b % 3 != 1);
      break;
    case Family::kOlmoe:
      config.qk_norms = QkNorms::kAllHeads;
      experts.per_token = 3;
      break;
    case Family::kMixtral:
      experts = {.count = 3,
                 .per_token = 3,
                 .intermediate_size = 28,
                 .normalizes_weights = true,
                 .balance_coefficient = 0.2};
      break;
    case Family::kGptOss:
      experts = {.count = 4,
                 .per_token = 2,
                 .intermediate_size = 28,
                 .normalizes_weights = true,
                 .balance_coefficient = 0.2,
                 .biases = true,
                 .picks_by_logit = true,
                 .clamped = ClampedSwiGluForm{.limit = 1.2, .alpha = 1.7}};
      break;
    default: return;
  }
  if (options.experts > 0) experts.count = options.experts;
  config.experts = experts;
}

// Heads that do not add up to the hidden size, caps low enough that they are felt, and in Gemma 3 a
// window of one token.
void SetGemma(const TestModelOptions& options, ModelConfig& config) {
  const bool third = options.family == Family::kGemma3;
  if (!third && options.family != Family::kGemma2) return;
  config.head_dim = 14;
  config.norm_placement = NormPlacement::kBoth;
  config.zero_centered_norms = true;
  config.activation = Activation::kGeluTanh;
  config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  config.rounds_embedding_multiplier = true;
  config.attention_multiplier = 1 / std::sqrt(20.0);
  config.sliding_window = third ? 1 : 4;
  for (int b = 0; b < options.blocks; ++b) config.attention.full_layers.push_back(b % 2 == 1);
  if (third) {
    config.qk_norms = QkNorms::kPerHead;
    config.attention.window_rope_theta = 100;
    config.rope_scaling = {.kind = RopeKind::kLinear, .factor = 4};
  } else {
    config.attention.cap = 0.5;
    config.logit_cap = 1.5;
  }
}

// Windows in every other layer, and rotations that are scaled evenly.
void SetGptOss(const TestModelOptions& options, ModelConfig& config) {
  if (options.family != Family::kGptOss) return;
  config.head_dim = 14;
  config.qkv_bias = config.output_bias = true;
  config.attention.sinks = true;
  config.sliding_window = 4;
  for (int b = 0; b < options.blocks; ++b) config.attention.full_layers.push_back(b % 2 == 1);
  config.rope_scaling = {.kind = RopeKind::kLinear, .factor = 4};
}

}  // namespace

ModelConfig TestConfig(const TestModelOptions& options) {
  ModelConfig config;
  config.architecture = ArchitectureOf(options.family);
  config.hidden_size = 60;
  config.intermediate_size = 92;
  config.num_hidden_layers = options.blocks;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 2;
  config.head_dim = 10;
  config.vocab_size = 131;
  config.rms_norm_eps = 1e-5;
  config.tie_word_embeddings = options.tied;
  config.qkv_bias = options.family == Family::kQwen2;
  if (options.family == Family::kQwen3) config.qk_norms = QkNorms::kPerHead;
  if (options.family == Family::kOlmo2) {
    config.qk_norms = QkNorms::kAllHeads;
    config.norm_placement = NormPlacement::kAfter;
  }
  if (options.family == Family::kSmolLm3) {
    for (int b = 0; b < options.blocks; ++b) config.rotating_layers.push_back(b % 2 == 0);
  }
  if (options.family == Family::kMistral) config.sliding_window = 4;
  if (options.family == Family::kPhi3) {
    config.sliding_window = 6;
    config.partial_rotary_factor = 0.6;
  }
  if (options.family == Family::kGranite) {
    config.embedding_multiplier = 3;
    config.attention_multiplier = 0.2;
    config.residual_multiplier = 0.4;
    config.logits_scaling = 1.5;
  }
  SetExperts(options, config);
  SetGemma(options, config);
  SetGptOss(options, config);
  return config;
}

namespace {

// What is left of a matrix in NF4.
at::Tensor ThroughNf4(const at::Tensor& values, const QuantizationSpec& quantization) {
  const Nf4Tensor packed = QuantizeNf4(values.contiguous(), quantization.double_quant);
  at::Tensor back = at::empty_like(values);
  MakeCpuOps()->Run(op::DequantizeNf4{packed.source(), back});
  return back;
}

}  // namespace

ReferenceTrainer::Weights RandomWeights(const TestModelOptions& options) {
  return RandomWeights(TestConfig(options), options.lora);
}

ReferenceTrainer::Weights WeightsAsTrained(const TestModelOptions& options) {
  ReferenceTrainer::Weights weights = RandomWeights(options);
  if (!options.quantization) return weights;
  for (const UnitTensor& tensor : ModelTensors(TestConfig(options))) {
    const bool of_expert = tensor.role == TensorRole::kExpertGateUp ||
                           tensor.role == TensorRole::kExpertDown ||
                           tensor.role == TensorRole::kSharedExpertGate;
    const bool of_block =
        tensor.name.starts_with("model.layers.") && tensor.name.ends_with("_proj.weight");
    if (of_block || of_expert) {
      at::Tensor& values = weights.at(tensor.name);
      values = ThroughNf4(values, *options.quantization);
    }
  }
  return weights;
}

ReferenceTrainer::Weights RandomWeights(const ModelConfig& config,
                                        const std::optional<LoraSpec>& lora) {
  at::Generator generator = at::detail::createCPUGenerator(11);
  ReferenceTrainer::Weights weights;
  std::vector<UnitTensor> tensors = ModelTensors(config);
  for (const UnitSpec& unit : SplitModel(config, 1, lora).trained) {
    for (const UnitTensor& tensor : unit.tensors) {
      if (IsAdapterTensor(tensor)) tensors.push_back(tensor);
    }
  }
  for (const UnitTensor& tensor : tensors) {
    const at::Tensor values = at::randn(tensor.shape, generator) * 0.1;
    const bool around_one = tensor.shape.size() == 1 && !config.zero_centered_norms;
    weights[tensor.name] = around_one ? values + 1.0 : values;
  }
  return weights;
}

void WriteModel(const TestModelOptions& options, const std::string& dir) {
  WriteModel(TestConfig(options), RandomWeights(options), dir);
}

void WriteModel(const ModelConfig& config, const ReferenceTrainer::Weights& weights,
                const std::string& dir) {
  const std::vector<StoredTensor> stored = StoredTensors(config);
  WeightFiles files(dir, {{"model.safetensors", FileTensors(stored)}});
  TensorStream stream(stored, files);
  Status written = files.Begin();
  for (const UnitTensor& tensor : ModelTensors(config)) {
    const at::Tensor values = weights.at(tensor.name).contiguous();
    if (written.ok()) written = stream.Append(values.const_data_ptr<float>(), values.numel());
  }
  if (written.ok()) written = files.Finish();
  MUSTER_CHECK(written.ok(), "the test's model cannot be written: " + written.ToString());
}

std::set<std::string> TrainedNames(const TestModelOptions& options) {
  std::set<std::string> names;
  for (const UnitSpec& unit : SplitModel(TestConfig(options), 1, options.lora).trained) {
    for (const UnitTensor& tensor : unit.tensors) names.insert(tensor.name);
  }
  return names;
}

StepBatches RandomBatches(const ModelConfig& config, int step, int world_size, int micro_batches) {
  std::mt19937_64 random(1000 + step);
  StepBatches batches(world_size);
  for (int r = 0; r < world_size; ++r) {
    for (int m = 0; m < micro_batches; ++m) {
      // Now and then a rank has nothing to learn from and must take part all the same.
      const bool with_labels = r == 0 || m + 1 < micro_batches || step % 2 == 0;
      batches[r].push_back(RandomBatch(config, random, with_labels));
    }
  }
  return batches;
}

}  // namespace muster::parity
