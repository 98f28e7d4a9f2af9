#include "trainer/model/parallel_experts.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "trainer/ops/scalar_type.h"
#include "trainer/ops/sum_rows.h"
#include "trainer/ops/to_device.h"

namespace muster {
namespace {

at::Tensor HostIndices(std::vector<std::int64_t>& values) {
  return at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())},
                       at::TensorOptions(at::kLong));
}

BlockBytes BytesOf(const std::vector<std::int64_t>& rows, const at::Tensor& array) {
  const std::int64_t width = array.stride(0) * static_cast<std::int64_t>(array.element_size());
  BlockBytes bytes;
  for (const std::int64_t count : rows) bytes.push_back(static_cast<std::size_t>(count * width));
  return bytes;
}

// Where no row came there is room for one all the same: memory must be somewhere.
std::int64_t Room(std::int64_t rows) { return std::max<std::int64_t>(1, rows); }

void ZeroGradient(const GradientTarget& target) {
  if (target.tensor.defined() && !target.add) at::Tensor(target.tensor).zero_();
}

ModelConfig OfOwnExperts(ModelConfig config, int ranks) {
  config.experts->count /= ranks;
  return config;
}

at::Tensor& TensorOf(at::Tensor& weight) { return weight; }
at::Tensor& TensorOf(GradientTarget& target) { return target.tensor; }

}  // namespace

ParallelExperts::ParallelExperts(const ModelConfig& config, const BlockLora& lora,
                                 Communicator& group, DeviceOps& ops, at::ScalarType type,
                                 int places)
    : config_(OfOwnExperts(config, group.size())),
      lora_(lora),
      group_(group),
      ops_(ops),
      type_(type),
      experts_(config_, ops, lora),
      arrived_(static_cast<std::size_t>(places)),
      scratch_arena_(ops) {
  for (int p = 0; p < places; ++p) arenas_.emplace_back(ops);
}

ExpertScratch ParallelExperts::CutScratch(const ModelConfig& config, BumpAllocator& allocator,
                                          std::int64_t tokens, at::ScalarType type) {
  const std::int64_t rows = tokens * config.experts->per_token;
  return {.rows = allocator.Cut({rows, config.hidden_size}, type),
          .row_gradients = allocator.Cut({rows}, WideType(type))};
}

ParallelExperts::Arrived ParallelExperts::CutArrived(const ModelConfig& config,
                                                     BumpAllocator& allocator, std::int64_t rows,
                                                     at::ScalarType type) {
  Arrived cut;
  cut.routing.row_weights = allocator.Cut({rows}, WideType(type));
  cut.rows = allocator.Cut({rows, config.hidden_size}, type);
  cut.gate_up = CutExpertGateUp(config, allocator, rows, type);
  return cut;
}

ParallelExperts::Scratch ParallelExperts::CutOwnScratch(const ModelConfig& config,
                                                        const BlockLora& lora,
                                                        BumpAllocator& allocator, std::int64_t rows,
                                                        at::ScalarType type) {
  return {.experts = CutExpertScratch(config, lora, allocator, rows, type),
          .rows = allocator.Cut({rows, config.hidden_size}, type),
          .weights = allocator.Cut({rows}, WideType(type))};
}

std::int64_t ParallelExperts::BytesFor(const ModelConfig& config, const BlockLora& lora, int ranks,
                                       std::int64_t tokens, at::ScalarType type, int places) {
  const std::int64_t rows = tokens * config.experts->per_token;
  BumpAllocator kept, scratch;
  CutArrived(config, kept, rows, type);
  CutOwnScratch(OfOwnExperts(config, ranks), lora, scratch, rows, type);
  const std::int64_t sparse = std::min<std::int64_t>(places, config.SparseLayers());
  return sparse * kept.used() + scratch.used();
}

std::int64_t ParallelExperts::bytes() const {
  std::int64_t bytes = scratch_arena_.bytes() + experts_.bytes();
  for (const Arena& arena : arenas_) bytes += arena.bytes();
  return bytes;
}

void ParallelExperts::SortRows(const std::vector<std::int64_t>& counts, Arrived* arrived) const {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const auto own = static_cast<std::size_t>(config_.experts->count), all = own * ranks;
  const std::size_t first = static_cast<std::size_t>(group_.rank()) * own;
  const auto count = [&](std::size_t rank, std::size_t expert) {
    return counts[rank * all + first + expert];
  };
  std::vector<std::int64_t>& begins = arrived->routing.begins;
  begins.assign(1, 0);
  std::vector<std::int64_t> next;  // by expert: where its next row is to be
  arrived->received.assign(ranks, 0);
  for (std::size_t e = 0; e < own; ++e) {
    next.push_back(begins.back());
    std::int64_t rows = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      rows += count(r, e);
      arrived->received[r] += count(r, e);
    }
    begins.push_back(begins.back() + rows);
  }
  const auto rows = static_cast<std::size_t>(begins.back());
  std::vector<std::int64_t> tokens(rows), places(rows);
  std::int64_t came = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t e = 0; e < own; ++e) {
      for (std::int64_t i = 0; i < count(r, e); ++i, ++came) {
        tokens[static_cast<std::size_t>(next[e])] = came;
        places[static_cast<std::size_t>(came)] = next[e]++;
      }
    }
  }
  arrived->routing.tokens = ToDevice(HostIndices(tokens), ops_.device());
  arrived->routing.places = ToDevice(HostIndices(places), ops_.device()).unsqueeze(1);
}

void ParallelExperts::FitScratch(std::int64_t rows) {
  scratch_arena_.Fit([&](BumpAllocator& allocator) {
    scratch_ = CutOwnScratch(config_, lora_, allocator, Room(rows), type_);
  });
}

void ParallelExperts::Meet(int block, const Routing& routing) {
  const auto ranks = static_cast<std::size_t>(group_.size());
  const auto own = static_cast<std::size_t>(config_.experts->count), all = own * ranks;
  std::vector<std::int64_t> counts(ranks * all, 0);
  std::int64_t* const mine = counts.data() + static_cast<std::size_t>(group_.rank()) * all;
  for (std::size_t e = 0; e < all; ++e) mine[e] = routing.begins[e + 1] - routing.begins[e];
  if (status_.ok()) {
    status_ = group_.AllGather(mine, counts.data(), all, ElementType::kInt64)->Wait();
  }
  if (!status_.ok()) std::ranges::fill(counts, 0);
  Arrived sorted;
  SortRows(counts, &sorted);
  for (std::size_t r = 0; r < ranks; ++r) {
    sorted.sent.push_back(routing.begins[(r + 1) * own] - routing.begins[r * own]);
  }
  const std::size_t place = PlaceOf(block);
  Arrived& arrived = arrived_[place];
  arenas_[place].Fit([&](BumpAllocator& allocator) {
    arrived = CutArrived(config_, allocator, Room(sorted.count()), type_);
  });
  FitScratch(sorted.count());
  sorted.routing.row_weights = arrived.routing.row_weights;
  sorted.rows = arrived.rows;
  sorted.gate_up = arrived.gate_up;
  arrived = std::move(sorted);
}

void ParallelExperts::Move(const at::Tensor& from, const std::vector<std::int64_t>& sent,
                           at::Tensor& to, const std::vector<std::int64_t>& received) {
  if (!status_.ok()) return;
  status_ = group_
                .AllToAll({.send = from.const_data_ptr(),
                           .receive = to.mutable_data_ptr(),
                           .send_bytes = BytesOf(sent, from),
                           .receive_bytes = BytesOf(received, to)})
                ->Wait();
}

void ParallelExperts::Send(const Arrived& arrived, const at::Tensor& from, at::Tensor& to) {
  Move(from, arrived.sent, to, arrived.received);
}

void ParallelExperts::Return(const Arrived& arrived, const at::Tensor& from, at::Tensor& to) {
  Move(from, arrived.received, to, arrived.sent);
}

template <typename Block>
Block ParallelExperts::OwnOf(const Block& block) const {
  Block own;
  own.expert_gate_up = block.expert_gate_up;
  own.expert_down = block.expert_down;
  const std::int64_t experts = config_.experts->count, first = group_.rank() * experts;
  for (auto* linear : {&own.expert_gate_up, &own.expert_down}) {
    at::Tensor &a = TensorOf(linear->lora_a), &b = TensorOf(linear->lora_b);
    if (!a.defined()) continue;
    const std::int64_t rank = a.size(0) / (experts * group_.size());
    a = a.narrow(0, first * rank, experts * rank);
    b = b.view({-1, experts * group_.size()}).narrow(1, first, experts);
  }
  return own;
}

void ParallelExperts::Gather(int block, const at::Tensor& x, const BlockWeights& weights,
                             const Routing& routing, ExpertScratch& scratch) {
  Meet(block, routing);
  Arrived& arrived = arrived_[PlaceOf(block)];
  at::index_select_out(scratch.rows, x, 0, routing.tokens);
  Send(arrived, scratch.rows, arrived.rows);
  Send(arrived, routing.row_weights, scratch_.weights);
  if (arrived.count() == 0) return;
  at::index_select_out(arrived.routing.row_weights, scratch_.weights, 0, arrived.routing.tokens);
  experts_.GateUp(arrived.rows, OwnOf(weights), arrived.routing, scratch_.experts, arrived.gate_up);
}

void ParallelExperts::Output(int block, const BlockWeights& weights, const Routing& routing,
                             ExpertScratch& scratch, at::Tensor& y) {
  Arrived& arrived = arrived_[PlaceOf(block)];
  if (arrived.count() > 0) {
    experts_.Output(OwnOf(weights), arrived.routing, arrived.gate_up, scratch_.experts,
                    scratch_.rows);
  }
  Return(arrived, scratch_.rows, scratch.rows);
  ops_.Run(op::SumRows{scratch.rows, routing.places, y});
}

void ParallelExperts::Backward(int block, const at::Tensor& y_gradient, const BlockWeights& weights,
                               const BlockGradients& gradients, const Routing& routing,
                               ExpertScratch& scratch, at::Tensor& x_gradient) {
  Arrived& arrived = arrived_[PlaceOf(block)];
  FitScratch(arrived.count());
  at::index_select_out(scratch.rows, y_gradient, 0, routing.tokens);
  Send(arrived, scratch.rows, scratch_.rows);
  for (const LinearGradients* of : {&gradients.expert_gate_up, &gradients.expert_down}) {
    ZeroGradient(of->lora_a);
    ZeroGradient(of->lora_b);
    if (arrived.count() > 0) continue;
    ZeroGradient(of->weight);
    ZeroGradient(of->bias);
  }
  if (arrived.count() > 0) {
    // The rows' gradients take the place of those that came.
    experts_.Backward(arrived.rows, scratch_.rows, OwnOf(weights), OwnOf(gradients),
                      arrived.routing, scratch_.experts, arrived.gate_up, scratch_.rows);
    at::index_select_out(scratch_.weights, scratch_.experts.row_gradients, 0,
                         arrived.routing.places.view({-1}));
  }
  Return(arrived, scratch_.rows, scratch.rows);
  Return(arrived, scratch_.weights, scratch.row_gradients);
  ops_.Run(op::SumRows{scratch.rows, routing.places, x_gradient});
}

}  // namespace muster
