#include <algorithm>

#include "common/base/check.h"
#include "trainer/model/families/family.h"

namespace muster {

Family Llama();
Family Mistral();
Family Qwen2();
Family Qwen3();
Family SmolLm3();
Family Olmo2();
Family Qwen2Moe();
Family Qwen3Moe();
Family Olmoe();
Family Mixtral();
Family Granite();
Family Phi3();
Family Gemma2();
Family Gemma3();
Family GptOss();

const std::vector<Family>& Families() {
  static const std::vector<Family> families = {
      Llama(), Mistral(), Qwen2(),   Qwen3(), SmolLm3(), Olmo2(),  Qwen2Moe(), Qwen3Moe(),
      Olmoe(), Mixtral(), Granite(), Phi3(),  Gemma2(),  Gemma3(), GptOss()};
  return families;
}

const Family& FamilyOf(const ModelConfig& config) {
  for (const Family& family : Families()) {
    if (family.defaults.architecture == config.architecture) return family;
  }
  MUSTER_CHECK(false, "a model of an unknown architecture");
  return Families().front();
}

void ReadExperts(ConfigReader& reader, ExpertsConfig& experts) {
  constexpr std::int64_t kMostExperts = 1 << 14;
  // The classes of transformers know both names.
  for (const char* key : {"num_experts", "num_local_experts"})
    reader.ReadDimension(key, kMostExperts, &experts.count);
  reader.ReadDimension("num_experts_per_tok", kMostExperts, &experts.per_token);
  if (experts.per_token > experts.count)
    reader.Fail("num_experts_per_tok", "is " + std::to_string(experts.per_token) +
                                           ", more than the " + std::to_string(experts.count) +
                                           " experts of a layer");
  static constexpr char kShared[] = "shared_expert_intermediate_size";
  const bool shares = experts.shared_intermediate_size > 0;
  if (shares) reader.ReadPositions(kShared, &experts.shared_intermediate_size);
  const auto refuse = [&reader](const char* key) {
    if (const auto* value = reader.Find(key); value != nullptr && *value != 0)
      reader.Refuse(std::string(key) + " other than 0 is not supported by this version");
  };
  for (const char* key : {"router_z_loss_coef", "num_shared_experts", "n_shared_experts"})
    refuse(key);
  if (!shares) refuse(kShared);
  bool wanted = false;
  reader.ReadBool("output_router_logits", &wanted);
  const auto* coefficient = reader.Find("router_aux_loss_coef");
  if (!wanted || (coefficient != nullptr && *coefficient == 0)) {
    experts.balance_coefficient = 0;
  } else {
    reader.ReadPositive("router_aux_loss_coef", &experts.balance_coefficient);
  }
}

namespace {

// Layers are dense that mlp_only_layers names, and those whose number is no multiple of
// decoder_sparse_step.
void ReadSparseLayers(ConfigReader& reader, ModelConfig& config) {
  std::int64_t step = 1;
  reader.ReadPositions("decoder_sparse_step", &step);
  std::vector<bool>& sparse = config.experts->sparse_layers;
  for (std::int64_t layer = 1; layer <= config.num_hidden_layers; ++layer)
    sparse.push_back(layer % step == 0);
  const auto* dense = reader.Find("mlp_only_layers");
  if (dense == nullptr) return;
  if (!dense->is_array()) return reader.Fail("mlp_only_layers", "is no list of layers");
  for (const auto& layer : *dense) {
    if (!layer.is_number_integer())
      return reader.Fail("mlp_only_layers", "holds " + layer.dump() + ", not a layer");
    // transformers takes numbers of layers that the model lacks as well.
    const auto number = layer.get<std::int64_t>();
    if (number >= 0 && number < std::ssize(sparse))
      sparse[static_cast<std::size_t>(number)] = false;
  }
}

void ReadLayerTypes(ConfigReader& reader, ModelConfig& config, std::int64_t interval) {
  std::vector<bool>& full = config.attention.full_layers;
  const auto* types = reader.Find("layer_types");
  if (types == nullptr) {
    for (std::int64_t layer = 1; layer <= config.num_hidden_layers; ++layer)
      full.push_back(layer % interval == 0);
    return;
  }
  const auto layers = static_cast<std::size_t>(config.num_hidden_layers);
  if (!types->is_array() || types->size() != layers)
    return reader.Fail("layer_types", "has " + std::to_string(types->size()) +
                                          " kinds; it needs one for each of the " +
                                          std::to_string(layers) + " layers");
  for (const auto& type : *types) {
    if (type != "full_attention" && type != "sliding_attention")
      return reader.Fail("layer_types", "holds " + type.dump() +
                                            "; a layer has full_attention or sliding_attention");
    full.push_back(type == "full_attention");
  }
}

}  // namespace

void ReadQwenExperts(ConfigReader& reader, ModelConfig& config, const ExpertsConfig& defaults) {
  for (const char* key : {"num_experts", "num_local_experts"}) {
    const auto* count = reader.Find(key);
    if (count != nullptr && *count == 0) return;  // every layer is dense
  }
  config.experts = defaults;
  ReadExperts(reader, *config.experts);
  reader.ReadPositions("moe_intermediate_size", &config.experts->intermediate_size);
  reader.ReadBool("norm_topk_prob", &config.experts->normalizes_weights);
  ReadSparseLayers(reader, config);
}

void ReadWindows(ConfigReader& reader, ModelConfig& config, std::int64_t interval) {
  ReadLayerTypes(reader, config, interval);
  const std::vector<bool>& full = config.attention.full_layers;
  const bool none = std::find(full.begin(), full.end(), false) == full.end();
  if (reader.IsNull("sliding_window")) {
    config.sliding_window.reset();
    if (!none) reader.Fail("sliding_window", "is null; layers with a window need one");
  } else {
    reader.ReadPositions("sliding_window", &*config.sliding_window);
  }
}

void RefuseWindowsOfSomeBlocks(ConfigReader& reader, ModelConfig& /*config*/) {
  bool used = false;
  reader.ReadBool("use_sliding_window", &used);
  if (const auto* types = reader.Find("layer_types"); types != nullptr && types->is_array()) {
    used = used || std::any_of(types->begin(), types->end(),
                               [](const auto& type) { return type != "full_attention"; });
  }
  if (used) reader.Refuse("sliding windows in some blocks are not supported by this version");
}

}  // namespace muster
