#include "trainer/verbs/rank_device.h"

#include <ATen/Context.h>

#include <chrono>
#include <cstdlib>

#include "trainer/comm/group/host_communicator.h"
#include "trainer/ops/cpu/cpu_ops.h"
#include "trainer/plugin/plugin_loader.h"

namespace muster {
namespace {

// cuBLAS repeats its bits only with workspaces of its own; it reads this when it is first used.
void MakeDeterministic() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

Result<RankDevice> MakeCudaDevice(const RankEnv& env, Duration timeout, JobSpec* spec) {
  MUSTER_ASSIGN_OR_RETURN(const CudaPlugin* const plugin, LoadCudaPlugin());
  MUSTER_ASSIGN_OR_RETURN(const int visible, plugin->device_count());
  const bool may_share = std::getenv("NCCL_HOSTID") != nullptr;
  const bool shown_its_own = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  MUSTER_ASSIGN_OR_RETURN(const int gpu,
                          ChooseGpu(visible, env.local_rank, shown_its_own, may_share));
  MUSTER_ASSIGN_OR_RETURN(const CudaDevice device, plugin->device(gpu));
  if (spec->train && spec->train->deterministic) MakeDeterministic();
  RankDevice made;
  if (spec->train) {
    MixedPrecision& precision = spec->train->fsdp.mixed_precision;
    const MixedPrecision usable = PrecisionOn(device.compute_major, precision);
    if (usable != precision) {
      made.notes.push_back(device.name + " has no bf16 (compute capability " +
                           std::to_string(device.compute_major) + "." +
                           std::to_string(device.compute_minor) + "): mixed_precision is fp16");
    }
    precision = usable;
  }
  MUSTER_ASSIGN_OR_RETURN(made.ops, plugin->make_ops(gpu));
  MUSTER_ASSIGN_OR_RETURN(auto rendezvous, plugin->make_rendezvous(gpu, timeout));
  made.communicator = std::make_unique<Communicator>(std::move(rendezvous));
  return made;
}

}  // namespace

Result<RankDevice> MakeRankDevice(const RankEnv& env, JobSpec* spec) {
  const Duration timeout = std::chrono::seconds(env.collective_timeout_s);
  if (spec->resources.device == "cuda") return MakeCudaDevice(env, timeout, spec);
  RankDevice made;
  made.ops = MakeCpuOps();
  made.communicator = MakeHostCommunicator({.operation_timeout = timeout});
  return made;
}

Result<int> ChooseGpu(int visible, int local_rank, bool shown_its_own, bool may_share) {
  if (visible == 1 && shown_its_own) return 0;
  if (local_rank < visible) return local_rank;
  if (may_share) return local_rank % visible;
  return FailedPrecondition("there is no GPU for local rank " + std::to_string(local_rank) + ": " +
                            std::to_string(visible) +
                            " can be seen; start fewer ranks per node, or give each rank an "
                            "NCCL_HOSTID of its own to let ranks share a GPU");
}

MixedPrecision PrecisionOn(int compute_major, MixedPrecision wanted) {
  const bool lacks = wanted == MixedPrecision::kBf16 && !SupportsBFloat16(compute_major);
  return lacks ? MixedPrecision::kFp16 : wanted;
}

}  // namespace muster
