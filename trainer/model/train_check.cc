#include "trainer/model/train_check.h"

#include <string>

#include "trainer/model/adapters.h"

namespace muster {

namespace {

Status CheckExpertParallel(const ModelConfig& config, const TrainSpec& train) {
  const int ranks = train.fsdp.expert_parallel;
  if (ranks == 1) return OkStatus();
  if (config.SparseLayers() == 0) {
    return InvalidArgument("fsdp.expert_parallel: this model has no experts; leave it out");
  }
  if (config.experts->count % ranks == 0) return OkStatus();
  return InvalidArgument("fsdp.expert_parallel: " + std::to_string(ranks) +
                         " ranks cannot have the same number of a layer's " +
                         std::to_string(config.experts->count) +
                         " experts; give a number that divides these");
}

}  // namespace

Status CheckTrain(const ModelConfig& config, const TrainSpec& train) {
  if (config.SparseLayers() > 0 && train.fsdp.blocks_per_unit > 1) {
    return Unimplemented(
        "fsdp.blocks_per_unit: the experts of this model are a unit for each layer; leave it at 1");
  }
  if (Status divided = CheckExpertParallel(config, train); !divided.ok()) return divided;
  return train.lora ? CheckLora(config, *train.lora) : OkStatus();
}

}  // namespace muster
