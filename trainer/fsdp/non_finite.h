// NonFiniteFinder: where a rank has a number that is not finite, for a step that is known to have
// one, after its FinishGradients. Nothing here is collective.
//
// Looks through arrays, which costs as much as reading them; losses are kept on the device until
// they are asked for, so that no micro-batch is waited for.
//
// Belongs to an engine; the trainer's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/gradient_reducer.h"
#include "trainer/fsdp/shard_state.h"
#include "trainer/ops/device_ops.h"

namespace muster {

enum class ShardArrays { kWeights, kGradients };

// A gradient of one rank alone.
struct OwnGradient {
  int micro_batch = -1;  // of this rank, from 0; -1: none
  std::string tensor;
};

class NonFiniteFinder {
 public:
  // `state_ops`: what works on the state. All outlive the object.
  NonFiniteFinder(const FlatLayout& layout, const ShardState& state, int shard_rank, DeviceOps& ops,
                  DeviceOps& state_ops);

  // The first micro-batch of this rank, from 0, after which its own loss was not finite; -1: none.
  int FirstLoss() const;
  // The first tensor of its shard of the weights, or of the gradients added up over the ranks, in
  // the order of the model; or "".
  std::string FirstTensor(ShardArrays arrays) const;
  // From here on, or no longer, its own gradients are looked through before they are added to those
  // of others, which costs a pass over them. `true` forgets what was found before.
  void WatchGradients(bool watch);
  const OwnGradient& first_gradient() const { return gradient_; }

  // The engine's: a step begins; a unit's own gradients are complete; a micro-batch is over, and
  // `loss` (fp64 on the device) is the sum of the step so far.
  void BeginStep() { micro_batch_ = 0; }
  void LookAt(int unit, const GradientReducer::Target& gradients);
  void NoteLoss(const at::Tensor& loss);

 private:
  const FlatLayout& layout_;
  const ShardState& state_;
  const int shard_rank_;
  DeviceOps& ops_;
  DeviceOps& state_ops_;
  int micro_batch_ = 0;  // of the step under way
  at::Tensor losses_;    // [at least micro_batch_] the sum after each; on the device
  bool watching_ = false;
  OwnGradient gradient_;
};

}  // namespace muster
