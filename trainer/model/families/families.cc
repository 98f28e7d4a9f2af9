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
Family Qwen3Moe();
Family Olmoe();
Family Mixtral();
Family Granite();
Family Phi3();

const std::vector<Family>& Families() {
  static const std::vector<Family> families = {Llama(),   Mistral(), Qwen2(),    Qwen3(),
                                               SmolLm3(), Olmo2(),   Qwen3Moe(), Olmoe(),
                                               Mixtral(), Granite(), Phi3()};
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
  bool wanted = false;
  reader.ReadBool("output_router_logits", &wanted);
  const auto* coefficient = reader.Find("router_aux_loss_coef");
  if (!wanted || (coefficient != nullptr && *coefficient == 0)) {
    experts.balance_coefficient = 0;
  } else {
    reader.ReadPositive("router_aux_loss_coef", &experts.balance_coefficient);
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
