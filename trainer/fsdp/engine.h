// Engine: the FsdpEngine (fsdp_engine.h has what it promises), apart from its pieces. Private to
// its sources: fsdp_engine.cc has the steps, engine_evaluate.cc what looks at rows without
// training.
//
// One thread, the trainer's.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/fsdp/async_cpu_optimizer.h"
#include "trainer/fsdp/frozen_weights.h"
#include "trainer/fsdp/fsdp_engine.h"
#include "trainer/fsdp/gradient_reducer.h"
#include "trainer/fsdp/loss_scaler.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/fsdp/state_snapshots.h"
#include "trainer/fsdp/step_batch.h"
#include "trainer/fsdp/unit_views.h"
#include "trainer/fsdp/unsharded_parameters.h"
#include "trainer/model/llama.h"
#include "trainer/model/llama_block.h"
#include "trainer/model/llama_head.h"
#include "trainer/ops/dropout.h"

namespace muster {

class Engine final : public FsdpEngine {
 public:
  Engine(const ModelConfig& config, const std::vector<UnitSpec>& trained, Mesh mesh, DeviceOps& ops,
         FsdpOptions options);
  Status Allocate(std::vector<UnitSpec> frozen);

  const FlatLayout& layout() const override { return layout_; }
  const ShardState& state() const override { return *state_; }
  void WeightsLoaded() override;
  Status LoadFrozen(const SafetensorsModel* model, const std::function<void()>& on_read) override;
  bool frozen_kept() const override { return frozen_ != nullptr && frozen_->kept(); }
  std::int64_t parameter_count() const override;
  bool is_first_replica() const override { return mesh_.replica() == 0; }
  Communicator* shard_group() const override { return mesh_.shard(); }
  Status ForwardBackward(const MicroBatch& batch, double loss_scale, bool last) override;
  Result<StepNumbers> FinishGradients(double vote) override;
  void OptimizerStep(Step step, double lr) override;
  Status Evaluate(const MicroBatch& batch) override;
  Result<EvalNumbers> FinishEvaluation() override;
  Result<std::vector<std::int32_t>> NextTokens(const std::vector<std::vector<std::int32_t>>& texts,
                                               std::int64_t words) override;
  void WaitForUpdate() override;
  void Seal(const TrainCursor& cursor) override;
  Status ReplaceState() override;
  Step SealedStep() const override;
  void SetBuddy(Buddy* buddy) override;
  int FirstNonFiniteLoss() override;
  std::string FirstNonFinite(ShardArrays arrays) override;
  void WatchGradients(bool watch) override;
  const OwnGradient& first_non_finite_gradient() const override { return bad_gradient_; }
  LossScaleState loss_scale() const override;
  void RestoreLossScale(const LossScaleState& state) override;
  EngineMemory memory() const override;

 private:
  // What the ranks add up at the end of a step; fp64 on the device.
  enum Sum { kLoss, kSquares, kVotes, kSumCount };
  // And at the end of an evaluation.
  enum EvalSum { kEvalLoss, kEvalLabels, kEvalCorrect, kEvalSumCount };

  Status RunMicroBatch(const MicroBatch& batch);
  std::optional<DropoutKey> MaskOf(const MicroBatch& batch) const;
  Result<ResidualStream> Forward(const MicroBatch& batch, const at::Tensor& ids);
  // Forward up to the head, which is there then.
  Result<HeadTask> ForwardAlone(const MicroBatch& batch, const LabelledPositions& labelled);
  HeadTask TaskOf(const ResidualStream& hidden, const LabelledPositions& labelled) const;
  // Adds up over the ranks, in host memory.
  Status AddUp(at::Tensor& sums);
  Result<at::Tensor> HeadBackward(const ResidualStream& hidden, const MicroBatch& batch);
  Status BlocksBackward(at::Tensor& gradient);
  Status EmbeddingBackward(const at::Tensor& gradient, const at::Tensor& ids);
  Result<StepNumbers> SumUp(double vote);
  void NoteLoss(double loss_scale);
  void LookAtGradients(int unit);
  // After an error: the next micro-batch is the first of a step again.
  void AbandonStep();

  // Once all units have been updated: what Seal had to leave.
  void SealUpdated();

  Status PlaceWeights(std::vector<UnitSpec> frozen);
  Status PlaceState();
  bool reshards() const;
  // The embedding's and the head's, and those of a unit of blocks.
  const UnitWeights& weights_of(int unit) const { return unit_weights_[unit]; }
  const at::Tensor& embedding() const { return unit_weights_.front().embedding; }
  bool trains_embedding() const { return !layout_.units().front().tensors.empty(); }

  void Prefetch(int unit);
  Status WaitForWeights(int unit);
  Result<UnitGradients> BeginGradients(int unit);
  Status ReduceGradients(int unit);
  at::Tensor OnDevice(const std::vector<std::int64_t>& values) const;

  // What works on the shards: the device, or the host where they are offloaded.
  DeviceOps& state_ops() const { return host_ops_ != nullptr ? *host_ops_ : ops_; }
  int head_unit() const { return static_cast<int>(layout_.units().size()) - 1; }
  const std::string& unit_name(int unit) const { return layout_.units()[unit].name; }
  void EnterPhase(TrainPhase phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }

  const ModelConfig config_;
  Mesh mesh_;
  DeviceOps& ops_;
  const FsdpOptions options_;
  const Precision precision_;
  const FlatLayout layout_;
  std::unique_ptr<DeviceOps> host_ops_;  // null: nothing is offloaded
  std::unique_ptr<ShardState> state_;
  std::unique_ptr<UnshardedParameters> weights_;  // ends first: gathers under way read the shards
  std::unique_ptr<FrozenWeights> frozen_;         // null: the whole model is trained
  std::unique_ptr<GradientReducer> reducer_;
  std::vector<UnitWeights> unit_weights_;  // by unit: what is gathered, trained or frozen
  LlamaBlocks blocks_;
  LlamaHead head_;
  RotaryTable rotary_;
  LossScaler scaler_;
  at::Tensor sums_;                             // [kSumCount] fp64 on the device
  at::Tensor eval_sums_;                        // [kEvalSumCount] fp64 on the device
  at::Tensor squares_;                          // [1] fp64 where the shards are
  at::Tensor tied_gradient_;                    // of the embedding by way of the head
  std::unique_ptr<StateSnapshots> snapshots_;   // null: none are made
  std::optional<TrainCursor> unsealed_;         // of the update under way
  std::unique_ptr<AsyncCpuOptimizer> updates_;  // ends before what it updates
  bool step_open_ = false;
  int micro_batch_ = 0;    // of the step under way
  at::Tensor losses_;      // [at least micro_batch_] sums_[kLoss] after each; on the device
  bool watching_ = false;  // own gradients
  OwnGradient bad_gradient_;
  GradientReducer::Target target_;  // of the unit whose gradients are being made
  bool last_micro_batch_ = false;
  double label_scale_ = 0;      // one over the labels of the step under way
  double gradient_factor_ = 1;  // clipping, and one over the loss scale
  bool overflow_ = false;
};

}  // namespace muster
