#include "trainer/model/weight_check.h"

#include <string>
#include <vector>

#include "trainer/model/families/units.h"

namespace muster {

Status CheckModelTensors(const ModelConfig& config, const SafetensorsModel& model) {
  for (const UnitTensor& expected : ModelTensors(config)) {
    const TensorSpec* found = model.Find(expected.name);
    if (found == nullptr) {
      return InvalidArgument("the model's safetensors hold no tensor " + expected.name +
                             ", which config.json calls for");
    }
    if (found->shape != expected.shape) {
      return InvalidArgument("tensor " + expected.name + " has shape " + ShapeText(found->shape) +
                             ", but config.json calls for " + ShapeText(expected.shape));
    }
  }
  return OkStatus();
}

}  // namespace muster
