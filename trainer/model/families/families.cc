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

const std::vector<Family>& Families() {
  static const std::vector<Family> families = {Llama(), Mistral(), Qwen2(),
                                               Qwen3(), SmolLm3(), Olmo2()};
  return families;
}

const Family& FamilyOf(const ModelConfig& config) {
  for (const Family& family : Families()) {
    if (family.defaults.architecture == config.architecture) return family;
  }
  MUSTER_CHECK(false, "a model of an unknown architecture");
  return Families().front();
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
