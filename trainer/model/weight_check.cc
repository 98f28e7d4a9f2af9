#include "trainer/model/weight_check.h"

#include <set>
#include <string>

#include "trainer/model/families/units.h"

namespace muster {
namespace {

// Older exports hold the frequencies of the rotation, which config.json gives, and a head beside
// an embedding that is tied to it.
bool IsRedundant(const ModelConfig& config, const std::string& name) {
  return name.ends_with(".rotary_emb.inv_freq") ||
         (config.tie_word_embeddings && name == "lm_head.weight");
}

}  // namespace

Status CheckModelTensors(const ModelConfig& config, const SafetensorsModel& model) {
  std::set<std::string> expected;
  for (const UnitTensor& tensor : ModelTensors(config)) {
    const TensorSpec* found = model.Find(tensor.name);
    if (found == nullptr) {
      return InvalidArgument("the model's safetensors hold no tensor " + tensor.name +
                             ", which config.json calls for");
    }
    const std::string what = model.FileOf(tensor.name) + ": tensor " + tensor.name;
    if (found->shape != tensor.shape) {
      return InvalidArgument(what + " has shape " + ShapeText(found->shape) +
                             ", but config.json calls for " + ShapeText(tensor.shape));
    }
    if (!IsReadableType(found->type)) {
      return InvalidArgument(what + " is of type " + std::string(TensorTypeName(found->type)) +
                             "; F32, BF16 and F16 are supported");
    }
    expected.insert(tensor.name);
  }
  for (const std::string& name : model.names()) {
    if (expected.contains(name) || IsRedundant(config, name)) continue;
    return InvalidArgument(model.FileOf(name) + ": tensor " + name +
                           " belongs to no model of this config.json");
  }
  return OkStatus();
}

}  // namespace muster
