// GradientReducer: takes the gradients of one unit after the other and leaves each rank with the
// sum over all ranks of its own shard, added up over the micro-batches of a step.
//
// Begin gives the memory for a unit's gradients, Reduce sends them off:
//
//   where the rank holds whole units and the types agree, that memory is the sum itself;
//   else it is one of two slots of the compute type, which take turns: while one is being reduced,
//   the backward pass fills the other;
//   when reducing once per step, slots are added to whole local sums, and the last micro-batch
//   reduces those.
//
// Replicas (no_shard, hybrid_shard) add up their shards after the last micro-batch. Where the sums
// live in host memory (cpu_offload), each micro-batch's shards are reduced on the device, added up
// by the replicas and sent there.
//
// The trainer's thread. Errors are the communicators'. The destructor waits for reductions under
// way: abort the communicators first when a peer may be lost.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/host_gradients.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/fsdp/placement.h"
#include "trainer/fsdp/shard_state.h"
#include "trainer/ops/device_ops.h"

namespace muster {

class GradientReducer {
 public:
  // Where a unit's gradients go, laid out as the unit.
  struct Target {
    void* flat = nullptr;
    ElementType type = ElementType::kFloat32;
    bool add = false;  // to what is there, instead of overwriting it
  };

  // Collective. host_ops: the gradient sums of `state` lie in host memory; null: on the device.
  // `every_micro_batch`: reduce after each micro-batch instead of after the last one.
  // All references outlive the object.
  static Result<std::unique_ptr<GradientReducer>> Create(const Placement& placement,
                                                         const ShardState& state, const Mesh& mesh,
                                                         DeviceOps& ops, DeviceOps* host_ops,
                                                         bool every_micro_batch);
  ~GradientReducer();

  // The next gradients are the first of a step: they overwrite those of the step before, and what a
  // step that failed has left under way is waited for and forgotten.
  void StartStep();
  // One unit at a time: Begin, fill every tensor, Reduce. `last`: of the step for this unit.
  Result<Target> Begin(int unit);
  Status Reduce(int unit, bool last);
  // Until every gradient shard is complete.
  Status Finish();

  // Allocated by this rank; slots in a shared region count.
  std::int64_t bytes() const { return bytes_; }

 private:
  struct Pending {
    int unit = 0;
    int slot = -1;  // that is being read; -1: none
    bool last = false;
    void* place = nullptr;  // of the result on the device; null: the unit's sum itself
    bool add = false;       // the result to the unit's sum in host memory
    std::unique_ptr<Work> work;
  };

  GradientReducer(const Placement& placement, const ShardState& state, const Mesh& mesh,
                  DeviceOps& ops, DeviceOps* host_ops, bool every_micro_batch);
  Status Place();
  Result<void*> Allocate(const FlatBuffer& buffer);
  Status Scatter(Pending reduction, void* source, ElementType type);
  Status SettleOldest();
  Status Reduced(const Pending& reduction);
  void ZeroGaps(int unit, void* flat) const;
  // The ranks that add up this unit's gradients and keep a part each.
  Communicator& SharersOf(int unit) const;
  void* SlotData(int slot) const;

  const std::vector<FlatUnit>& parts_;
  const ShardState& state_;
  const Mesh& mesh_;
  DeviceOps& ops_;
  DeviceOps* const host_ops_;
  const bool every_micro_batch_;
  const ElementType compute_;
  const ElementType gradient_;
  const std::vector<FlatUnit>& units_;
  const bool sharded_;  // the shard group has peers
  const GradientBuffers& placed_;

  std::int64_t bytes_ = 0;
  std::vector<at::Tensor> memory_;
  std::unique_ptr<SharedRegion> region_;
  void* slots_ = nullptr;
  int next_slot_ = 0;
  std::vector<void*> local_;                 // by unit: whole sums of this rank; empty: not kept
  std::vector<std::vector<Interval>> gaps_;  // by unit: elements that belong to no tensor
  std::vector<bool> touched_;                // by unit: once at least in this step
  std::unique_ptr<HostGradients> to_host_;   // null: the sums are on the device
  std::deque<Pending> pending_;
  std::vector<std::unique_ptr<Work>> replica_works_;
};

}  // namespace muster
