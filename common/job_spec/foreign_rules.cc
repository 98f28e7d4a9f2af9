#include "common/job_spec/foreign_rules.h"

#include <array>

namespace muster {

void MapStage(ForeignReader& reader, const ForeignEntry& entry) {
  // ZeRO 1 shards the optimizer's state alone; sharding gradients too changes no number.
  constexpr std::array<std::string_view, 4> kStages = {"no_shard", "shard_grad_op", "shard_grad_op",
                                                       "full_shard"};
  const double stage = entry.number().value_or(-1);
  if (stage != 0 && stage != 1 && stage != 2 && stage != 3)
    return reader.Refuse(entry, "expected a stage from 0 to 3");
  reader.Set("train.fsdp.strategy", std::string(kStages[static_cast<std::size_t>(stage)]), entry);
}

void MapOffloadDevice(ForeignReader& reader, const ForeignEntry& entry) {
  if (entry.is("cpu")) return reader.Set("train.fsdp.cpu_offload", "true", entry);
  if (!entry.is("none"))
    reader.Refuse(entry, "state can lie on the device or in host memory (cpu), nowhere else");
}

void MapAccumulation(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetCount("train.batch.accumulation", entry);
}

void MapClipping(ForeignReader& reader, const ForeignEntry& entry) {
  reader.SetNumber("train.optimizer.grad_clip", entry);
}

}  // namespace muster
