#include "trainer/train/warm_up.h"

#include <chrono>
#include <cstdint>

#include "trainer/comm/group/host_communicator.h"
#include "trainer/data/batch_loader.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/ops/device_ops.h"

namespace muster {
namespace {

// Its engine takes about twenty times as many bytes.
constexpr std::int64_t kMostParameters = 32'000'000;

}  // namespace

void WarmUp(const JobSpec& spec, const TrainInputs& inputs) {
  if (spec.resources.device != "cpu") return;
  ModelConfig config = inputs.config;
  config.num_hidden_layers = 1;
  if (config.ParameterCount() > kMostParameters) return;
  const std::unique_ptr<Communicator> communicator = MakeHostCommunicator();
  const auto soon = Deadline::After(std::chrono::seconds(10));
  if (!communicator->Form({.generation = 1, .rank = 0, .world_size = 1}, soon).ok()) return;
  const std::unique_ptr<DeviceOps> ops = MakeCpuOps();
  const auto engine =
      FsdpEngine::Create(config, *communicator, *ops, OptionsOf(*spec.train, /*ranks_per_node=*/1));
  if (!engine.ok()) return;
  BatchLoader loader(*inputs.dataset, {.per_rank = spec.train->batch.per_rank},
                     {.seed = spec.train->seed, .shuffle = spec.train->data.shuffle},
                     inputs.pad_id);
  const Result<MicroBatch> batch = loader.Get(0, 0);
  if (!batch.ok()) return;
  // What goes wrong here goes wrong again where it matters, and is reported there.
  if (!(*engine)->ForwardBackward(*batch, 1, /*last=*/true).ok()) return;
  if ((*engine)->FinishGradients().ok()) (*engine)->OptimizerStep(1, 0);
}

}  // namespace muster
