#include "trainer/fsdp/placement.h"

#include <algorithm>
#include <array>
#include <utility>

#include "trainer/fsdp/frozen_layout.h"
#include "trainer/fsdp/mesh.h"
#include "trainer/fsdp/state_plan.h"

namespace muster {
namespace {

constexpr char kFrozen[] = "frozen weights";
constexpr char kGradientSlots[] = "gradient slots";

std::int64_t ShardElements(const FlatLayout& layout) {
  std::int64_t count = 0;
  for (const FlatUnit& unit : layout.units()) count += unit.shard_count;
  return count;
}

std::vector<FlatUnit> PartsOf(const FlatLayout& layout, int rank) {
  std::vector<FlatUnit> parts;
  for (const FlatUnit& unit : layout.units()) parts.push_back(SliceOf(unit, rank));
  return parts;
}

GatheredUnits PlaceSlots(const std::vector<FlatUnit>& units, FlatBuffer buffer) {
  const std::size_t last = units.size() - 1;
  std::array<std::int64_t, 4> begins = {0, 0, 0, 0};  // of two slots of blocks, embedding, head
  for (std::size_t u = 1; u < last; ++u) {
    begins[1 + u % 2] = std::max(begins[1 + u % 2], units[u].flat_count);
  }
  begins[2] += begins[1];
  begins[3] = begins[2] + units.front().flat_count;
  buffer.count = begins[3] + units.back().flat_count;
  GatheredUnits placed{.buffer = buffer};
  for (std::size_t u = 0; u <= last; ++u) {
    placed.begins.push_back(begins[u == 0 ? 2 : u == last ? 3 : u % 2]);
  }
  return placed;
}

class Placer {
 public:
  Placer(const FsdpOptions& options, const PlacedRank& rank)
      : options_(options),
        rank_(rank),
        precision_(options.precision),
        offloads_(options.cpu_offload && !rank.on_host),
        state_memory_(offloads_ ? MemoryKind::kHost : MemoryKind::kDevice) {}

  GatheredUnits Gathered(const FlatLayout& layout, ElementType type, bool reshards) const {
    const bool shares = rank_.shares_memory && !offloads_;
    FlatBuffer buffer{.name = "unsharded parameters",
                      .type = type,
                      .memory = shares ? MemoryKind::kCommon : MemoryKind::kDevice};
    GatheredUnits placed{.buffer = buffer};
    const std::vector<FlatUnit> parts = PartsOf(layout, rank_.rank);
    // What was offloaded must not be on the device all the time.
    if (reshards && !shares && (offloads_ || rank_.ranks > 1)) {
      placed = PlaceSlots(parts, buffer);
    } else {
      // An array of all ranks has all that any of them gathers.
      for (std::size_t u = 0; u < parts.size(); ++u) {
        const FlatUnit& unit = layout.units()[u];
        const std::int64_t count = shares ? unit.flat_count : parts[u].flat_count;
        placed.begins.push_back(placed.buffer.count + (shares ? unit.Slice(rank_.rank).begin : 0));
        placed.buffer.count += count;
        placed.buffer.of_others += count - parts[u].flat_count;
      }
      placed.holds_shards = !offloads_;
    }
    placed.from_host = offloads_;
    return placed;
  }

  void Frozen(Placement* placed) const {
    const bool reshards = ReshardsAfterForward(options_.strategy);
    placed->frozen_gathered = Gathered(placed->frozen, ElementType::kUint8, reshards);
    if (placed->frozen_gathered.holds_shards) {
      placed->frozen_gathered.buffer.name = kFrozen;
    } else {
      placed->frozen_shards = {kFrozen, ElementType::kUint8, ShardElements(placed->frozen),
                               state_memory_};
    }
  }

  StateBuffers State(const Placement& placed) const {
    StateBuffers state;
    state.in_segment =
        rank_.takes_snapshots && options_.snapshot_every == 1 && (rank_.on_host || offloads_);
    state.has_low_precision = state.in_segment || precision_.compute != precision_.master;
    const std::int64_t count = ShardElements(placed.trained);
    const bool apart = !placed.gathered.holds_shards;
    const auto buffer = [&](const char* name, ElementType type) {
      return FlatBuffer{name, type, count, state_memory_};
    };
    if (!state.in_segment) {
      if (state.has_low_precision || apart) {
        state.master = buffer("master weights", precision_.master);
      }
      state.exp_avg = state.exp_avg_sq = buffer("moments", precision_.moments);
    }
    state.gradient = buffer("gradient sums", precision_.gradient);
    if (state.has_low_precision && apart) {
      state.low_precision = buffer("compute copy", precision_.compute);
    }
    return state;
  }

  GradientBuffers Gradients(const std::vector<FlatUnit>& parts) const {
    std::int64_t largest = 0, largest_shard = 0, total = 0;
    for (const FlatUnit& unit : parts) {
      largest = std::max(largest, unit.flat_count);
      largest_shard = std::max(largest_shard, unit.shard_count);
      total += unit.flat_count;
    }
    GradientBuffers placed;
    const bool sharded = rank_.ranks > 1;
    const bool keeps_local = sharded && !options_.reduce_every_micro_batch;
    // What is scattered lies where the peers can read it in place.
    const MemoryKind source = rank_.shares_memory ? MemoryKind::kPerRank : MemoryKind::kDevice;
    if (keeps_local) placed.local = {kGradientSlots, precision_.gradient, total, source};
    if (offloads_) {
      placed.travelling = {kGradientSlots, precision_.gradient,
                           kTravellingGradients * largest_shard};
      placed.landing = placed.travelling;
      placed.landing.memory = MemoryKind::kHost;
    }
    const bool same_type = precision_.compute == precision_.gradient;
    if (same_type && (sharded ? keeps_local : !offloads_)) return placed;
    placed.slots = sharded && !keeps_local ? 2 : 1;
    placed.slot_memory = {kGradientSlots, precision_.compute, placed.slots * largest,
                          placed.slots == 2 ? source : MemoryKind::kDevice};
    return placed;
  }

 private:
  const FsdpOptions& options_;
  const PlacedRank& rank_;
  const Precision precision_;
  const bool offloads_;
  const MemoryKind state_memory_;
};

}  // namespace

std::vector<FlatBuffer> Placement::buffers() const {
  return {state.master,          state.exp_avg,   state.exp_avg_sq,       state.gradient,
          state.low_precision,   frozen_shards,   frozen_gathered.buffer, gathered.buffer,
          gradients.slot_memory, gradients.local, gradients.travelling,   gradients.landing};
}

Placement PlaceUnits(const ModelConfig& config, const FsdpOptions& options,
                     const PlacedRank& rank) {
  const Precision& precision = options.precision;
  SplitUnits units = SplitModel(config, options.blocks_per_unit, options.lora);
  const bool adapters = !units.frozen.empty();
  Placement placed{.trained = LayOutTrained(units, rank.ranks, rank.expert_ways),
                   .frozen = LayOutFrozen(units.frozen, {precision.compute, options.quantization},
                                          rank.ranks, rank.expert_ways)};
  placed.parts = PartsOf(placed.trained, rank.rank);
  placed.frozen_units = std::move(units.frozen);
  const Placer placer(options, rank);
  // Adapters are small: once gathered they stay until they are updated.
  placed.gathered = placer.Gathered(placed.trained, precision.compute,
                                    ReshardsAfterForward(options.strategy) && !adapters);
  if (adapters) placer.Frozen(&placed);
  placed.state = placer.State(placed);
  placed.gradients = placer.Gradients(placed.parts);
  if (rank.takes_snapshots) {
    const auto slot = Segment::SlotBytes(StateArrays(placed.trained, 0, precision));
    placed.snapshots = {"snapshots", ElementType::kUint8,
                        kTrainingSlots * static_cast<std::int64_t>(slot), MemoryKind::kHost};
  }
  return placed;
}

}  // namespace muster
