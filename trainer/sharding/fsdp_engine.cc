#include "trainer/sharding/fsdp_engine.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trainer/model/llama.h"
#include "trainer/model/llama_units.h"
#include "trainer/model/loss.h"
#include "trainer/sharding/gathered_weights.h"
#include "trainer/sharding/gradient_reducer.h"

namespace muster {
namespace {

// The rows and columns that a unit's matrices have in its flat array, joined tensors as one.
struct MatrixPlace {
  std::int64_t offset = 0;
  std::vector<std::int64_t> shape;
};

std::vector<MatrixPlace> Matrices(const FlatUnit& unit) {
  std::vector<MatrixPlace> places;
  for (const FlatTensor& tensor : unit.tensors) {
    if (tensor.spec.joined) {
      places.back().shape[0] += tensor.spec.shape[0];
    } else {
      places.push_back({tensor.offset, tensor.spec.shape});
    }
  }
  return places;
}

at::Tensor ViewOf(void* flat, const MatrixPlace& place, at::ScalarType type) {
  auto* const first = static_cast<char*>(flat) + place.offset * at::elementSize(type);
  return at::from_blob(first, place.shape, at::TensorOptions().dtype(type));
}

at::Tensor LongTensor(const std::vector<std::int64_t>& values, at::IntArrayRef shape) {
  return at::from_blob(const_cast<std::int64_t*>(values.data()), shape,
                       at::TensorOptions().dtype(at::kLong));
}

std::int64_t RoundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Rows padded on the right to a multiple of kLengthMultiple. Matrix libraries compile and keep a
// kernel for every shape that they meet; a few lengths serve as well as hundreds.
constexpr std::int64_t kLengthMultiple = 32;
MicroBatch PadToFewLengths(const MicroBatch& batch) {
  MicroBatch padded;
  padded.rows = batch.rows;
  padded.length = RoundUp(batch.length, kLengthMultiple);
  padded.input_ids.assign(padded.rows * padded.length, 0);
  padded.labels.assign(padded.rows * padded.length, kIgnoredLabel);
  for (std::int64_t row = 0; row < batch.rows; ++row) {
    const std::int64_t from = row * batch.length, to = row * padded.length;
    std::copy_n(batch.input_ids.begin() + from, batch.length, padded.input_ids.begin() + to);
    std::copy_n(batch.labels.begin() + from, batch.length, padded.labels.begin() + to);
  }
  return padded;
}

// The positions that reach the head: those with a label, filled up, for the same reason, with
// copies of the first position that have none.
constexpr std::int64_t kLabelMultiple = 64;
struct LabelledPositions {
  std::int64_t count = 0;
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> labels;
};
LabelledPositions FindLabels(const MicroBatch& batch) {
  LabelledPositions found;
  for (std::size_t i = 0; i < batch.labels.size(); ++i) {
    if (batch.labels[i] == kIgnoredLabel) continue;
    found.positions.push_back(static_cast<std::int64_t>(i));
    found.labels.push_back(batch.labels[i]);
  }
  found.count = static_cast<std::int64_t>(found.labels.size());
  found.positions.resize(RoundUp(found.count, kLabelMultiple), 0);
  found.labels.resize(found.positions.size(), kIgnoredLabel);
  return found;
}

// One block's part of the graph: from a leaf input to its output.
struct BlockGraph {
  at::Tensor input;
  at::Tensor output;
};

class Engine final : public FsdpEngine {
 public:
  Engine(const ModelConfig& config, Communicator& communicator, FsdpOptions options);

  const FlatLayout& layout() const override { return layout_; }
  const ShardState& state() const override { return state_; }
  void WeightsLoaded() override;
  Status ForwardBackward(const MicroBatch& batch, double loss_scale) override;
  Result<StepNumbers> FinishGradients(double vote) override;
  void OptimizerStep(Step step, double lr) override;

 private:
  Status RunMicroBatch(const MicroBatch& batch, double loss_scale);
  Result<StepNumbers> SumUp(double vote);
  // After an error: the next micro-batch is the first of a step again.
  void AbandonStep();
  Result<at::Tensor> Forward(const at::Tensor& ids);
  Result<at::Tensor> HeadBackward(const at::Tensor& hidden, const MicroBatch& batch, double scale);
  Status BlocksBackward(at::Tensor* gradient);
  Status EmbeddingBackward(const at::Tensor& gradient, const MicroBatch& batch);
  Status ReduceGradients(int unit, const std::vector<at::Tensor>& gradients);

  BlockWeights Block(int unit) const;
  int head_unit() const { return static_cast<int>(layout_.units().size()) - 1; }
  void EnterPhase(TrainPhase phase) {
    if (options_.on_phase) options_.on_phase(phase);
  }

  const ModelConfig config_;
  Communicator& communicator_;
  const FsdpOptions options_;
  const FlatLayout layout_;
  ShardState state_;
  GatheredWeights weights_;
  GradientReducer reducer_;
  RotaryTable rotary_;
  std::vector<std::vector<MatrixPlace>> places_;  // by unit
  std::vector<std::vector<at::Tensor>> leaves_;   // by unit: views of the gathered weights
  std::vector<BlockGraph> graphs_;                // of the micro-batch under way
  at::Tensor tied_gradient_;                      // of the embedding by way of the head
  bool step_open_ = false;
  double loss_ = 0;  // of this rank's micro-batches
  double clip_factor_ = 1;
};

Engine::Engine(const ModelConfig& config, Communicator& communicator, FsdpOptions options)
    : config_(config),
      communicator_(communicator),
      options_(std::move(options)),
      layout_(LlamaUnits(config), communicator.size()),
      state_(layout_, communicator.rank(), options_.precision),
      weights_(layout_, state_, communicator),
      reducer_(layout_, state_, communicator),
      rotary_(config) {
  const at::ScalarType type =
      options_.precision == MixedPrecision::kBf16 ? at::kBFloat16 : at::kFloat;
  for (int u = 0; u < static_cast<int>(layout_.units().size()); ++u) {
    places_.push_back(Matrices(layout_.units()[u]));
    std::vector<at::Tensor>& leaves = leaves_.emplace_back();
    for (const MatrixPlace& place : places_[u]) {
      // Collectives write below autograd: a slot that is gathered again does not count as modified,
      // and what a graph has saved of it is right again by then.
      leaves.push_back(ViewOf(weights_.data(u), place, type).requires_grad_(true));
    }
  }
}

void Engine::WeightsLoaded() {
  state_.RefreshShadows();
  weights_.Invalidate();
}

Status Engine::ForwardBackward(const MicroBatch& given, double loss_scale) {
  const at::NoGradGuard no_grad;
  const MicroBatch batch = PadToFewLengths(given);
  if (!step_open_) {
    reducer_.StartStep();
    loss_ = 0;
    step_open_ = true;
  }
  Status status = RunMicroBatch(batch, loss_scale);
  if (!status.ok()) AbandonStep();
  return status;
}

void Engine::AbandonStep() {
  step_open_ = false;
  graphs_.clear();
  tied_gradient_.reset();
  weights_.Invalidate();
}

Status Engine::RunMicroBatch(const MicroBatch& batch, double loss_scale) {
  rotary_.Ensure(batch.length);
  EnterPhase(TrainPhase::kForward);
  MUSTER_ASSIGN_OR_RETURN(const at::Tensor hidden,
                          Forward(LongTensor(batch.input_ids, {batch.rows, batch.length})));
  EnterPhase(TrainPhase::kBackward);
  MUSTER_ASSIGN_OR_RETURN(at::Tensor gradient, HeadBackward(hidden, batch, loss_scale));
  MUSTER_RETURN_IF_ERROR(BlocksBackward(&gradient));
  return EmbeddingBackward(gradient, batch);
}

Result<at::Tensor> Engine::Forward(const at::Tensor& ids) {
  weights_.Prefetch(0);
  weights_.Prefetch(1);
  MUSTER_RETURN_IF_ERROR(weights_.Wait(0));
  at::Tensor hidden = EmbedTokens(leaves_[0][0], ids);
  for (int u = 1; u < head_unit(); ++u) {
    weights_.Prefetch(u + 1);
    MUSTER_RETURN_IF_ERROR(weights_.Wait(u));
    const at::Tensor input = hidden.detach().requires_grad_(true);
    const at::AutoGradMode record(true);
    graphs_.push_back({input, BlockForward(config_, rotary_, input, Block(u))});
    hidden = graphs_.back().output.detach();
  }
  return hidden;
}

Result<at::Tensor> Engine::HeadBackward(const at::Tensor& hidden, const MicroBatch& batch,
                                        double scale) {
  const LabelledPositions labelled = FindLabels(batch);
  const auto rows_computed = static_cast<std::int64_t>(labelled.positions.size());
  const at::Tensor index = LongTensor(labelled.positions, {rows_computed});
  const at::Tensor flat = hidden.reshape({-1, config_.hidden_size});
  MUSTER_RETURN_IF_ERROR(weights_.Wait(head_unit()));
  const at::Tensor& norm = leaves_[head_unit()][0];
  const at::Tensor rows = flat.index_select(0, index).requires_grad_(true);
  at::Tensor normed;
  {
    const at::AutoGradMode record(true);
    normed = RmsNorm(rows, norm, config_.rms_norm_eps);
  }
  const bool tied = config_.tie_word_embeddings;
  const at::Tensor& head = tied ? leaves_[0][0] : leaves_[head_unit()][1];
  const HeadLoss loss =
      CrossEntropyHead(normed.detach(), head.detach(), LongTensor(labelled.labels, {rows_computed}),
                       {.scale = scale});
  loss_ += loss.loss;
  std::vector<at::Tensor> gradients =
      torch::autograd::grad({normed}, {rows, norm}, {loss.hidden_gradient});
  if (tied) {
    tied_gradient_ = loss.weight_gradient;
    MUSTER_RETURN_IF_ERROR(ReduceGradients(head_unit(), {gradients[1]}));
  } else {
    MUSTER_RETURN_IF_ERROR(ReduceGradients(head_unit(), {gradients[1], loss.weight_gradient}));
  }
  return at::zeros_like(flat)
      .index_copy_(0, index.narrow(0, 0, labelled.count), gradients[0].narrow(0, 0, labelled.count))
      .view(hidden.sizes());
}

Status Engine::BlocksBackward(at::Tensor* gradient) {
  for (int u = head_unit() - 1; u >= 1; --u) {
    if (u > 1) weights_.Prefetch(u - 1);
    MUSTER_RETURN_IF_ERROR(weights_.Wait(u));
    std::vector<at::Tensor> inputs = {graphs_.back().input};
    inputs.insert(inputs.end(), leaves_[u].begin(), leaves_[u].end());
    std::vector<at::Tensor> gradients =
        torch::autograd::grad({graphs_.back().output}, inputs, {*gradient});
    graphs_.pop_back();
    *gradient = gradients.front();
    gradients.erase(gradients.begin());
    MUSTER_RETURN_IF_ERROR(ReduceGradients(u, gradients));
  }
  return OkStatus();
}

Status Engine::EmbeddingBackward(const at::Tensor& gradient, const MicroBatch& batch) {
  MUSTER_ASSIGN_OR_RETURN(const GradientReducer::Target target, reducer_.Begin(0));
  at::Tensor flat = ViewOf(target.flat, places_[0][0], at::kFloat);
  if (!target.add) flat.zero_();
  if (tied_gradient_.defined()) flat.add_(tied_gradient_);
  tied_gradient_.reset();
  // Added in fp32 and in order: a frequent token's gradient is a sum over many positions.
  const at::Tensor rows = gradient.to(at::kFloat).contiguous();
  const float* row = rows.const_data_ptr<float>();
  const std::int64_t hidden = config_.hidden_size;
  for (const std::int64_t id : batch.input_ids) {
    float* const sum = target.flat + places_[0][0].offset + id * hidden;
    for (std::int64_t i = 0; i < hidden; ++i) sum[i] += row[i];
    row += hidden;
  }
  reducer_.Reduce(0);
  return OkStatus();
}

Status Engine::ReduceGradients(int unit, const std::vector<at::Tensor>& gradients) {
  MUSTER_ASSIGN_OR_RETURN(const GradientReducer::Target target, reducer_.Begin(unit));
  for (std::size_t t = 0; t < gradients.size(); ++t) {
    at::Tensor place = ViewOf(target.flat, places_[unit][t], at::kFloat);
    if (target.add) {
      place.add_(gradients[t]);
    } else {
      place.copy_(gradients[t]);
    }
  }
  reducer_.Reduce(unit);
  return OkStatus();
}

Result<StepNumbers> Engine::FinishGradients(double vote) {
  Result<StepNumbers> numbers = SumUp(vote);
  if (!numbers.ok()) AbandonStep();
  return numbers;
}

Result<StepNumbers> Engine::SumUp(double vote) {
  MUSTER_RETURN_IF_ERROR(reducer_.Finish());
  double sums[3] = {loss_, 0, vote};
  for (const UnitShard& unit : state_.units()) sums[1] += SumOfSquares(unit.gradient, unit.count);
  if (communicator_.size() > 1) {
    MUSTER_RETURN_IF_ERROR(
        communicator_.AllReduce(sums, 3, ElementType::kFloat64, ReduceOp::kSum)->Wait());
  }
  step_open_ = false;
  const StepNumbers numbers{.loss = sums[0], .grad_norm = std::sqrt(sums[1]), .votes = sums[2]};
  // As torch.nn.utils.clip_grad_norm_, down to the small constant.
  clip_factor_ =
      options_.grad_clip > 0 ? std::min(1.0, options_.grad_clip / (numbers.grad_norm + 1e-6)) : 1.0;
  return numbers;
}

void Engine::OptimizerStep(Step step, double lr) {
  EnterPhase(TrainPhase::kOptimizer);
  const AdamWStep update{.number = step, .lr = lr, .gradient_scale = clip_factor_};
  constexpr std::int64_t kGrain = 1 << 16;
  for (const UnitShard& unit : state_.units()) {
    const AdamWArrays arrays{.weight = unit.master,
                             .exp_avg = unit.exp_avg,
                             .exp_avg_sq = unit.exp_avg_sq,
                             .gradient = unit.gradient,
                             .shadow = unit.shadow};
    at::parallel_for(0, unit.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      AdamWUpdate(arrays, begin, end, options_.adamw, update);
    });
  }
  weights_.Invalidate();
}

BlockWeights Engine::Block(int unit) const {
  const std::vector<at::Tensor>& views = leaves_[unit];
  return {views[0], views[1], views[2], views[3], views[4], views[5]};
}

}  // namespace

bool StepNumbers::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

std::unique_ptr<FsdpEngine> FsdpEngine::Create(const ModelConfig& config,
                                               Communicator& communicator, FsdpOptions options) {
  return std::make_unique<Engine>(config, communicator, std::move(options));
}

}  // namespace muster
