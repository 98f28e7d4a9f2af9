#include "trainer/model/train_check.h"

#include "trainer/model/adapters.h"

namespace muster {

Status CheckTrain(const ModelConfig& config, const TrainSpec& train) {
  if (config.SparseLayers() > 0 && train.fsdp.blocks_per_unit > 1) {
    return Unimplemented(
        "fsdp.blocks_per_unit: the experts of this model are a unit for each layer; leave it at 1");
  }
  return train.lora ? CheckLora(config, *train.lora) : OkStatus();
}

}  // namespace muster
