#include "worker/agent/rank_counters.h"

#include <utility>

namespace muster::worker {
namespace {

template <typename Array, typename Function>
void EachOf(Array& mine, const Array& others, Function combine) {
  for (std::size_t i = 0; i < mine.size(); ++i) combine(mine[i], others[i]);
}

// `combine` adds the second to the first, or takes it off.
template <typename Function>
void Combine(RankTotals& mine, const RankTotals& other, Function combine) {
  combine(mine.steps, other.steps);
  combine(mine.tokens, other.tokens);
  combine(mine.samples, other.samples);
  combine(mine.flops, other.flops);
  combine(mine.nonfinite, other.nonfinite);
  combine(mine.wait_seconds, other.wait_seconds);
  combine(mine.step_seconds_sum, other.step_seconds_sum);
  EachOf(mine.step_seconds_buckets, other.step_seconds_buckets, combine);
  EachOf(mine.part_seconds, other.part_seconds, combine);
  EachOf(mine.time_seconds, other.time_seconds, combine);
  EachOf(mine.stage.buckets, other.stage.buckets, combine);
  combine(mine.stage.sum, other.stage.sum);
  EachOf(mine.write.buckets, other.write.buckets, combine);
  combine(mine.write.sum, other.write.sum);
  combine(mine.checkpoint_bytes, other.checkpoint_bytes);
  EachOf(mine.collective_errors, other.collective_errors, combine);
  combine(mine.alloc_retries, other.alloc_retries);
  combine(mine.ooms, other.ooms);
  EachOf(mine.collectives, other.collectives, combine);
  combine(mine.socket_fallbacks, other.socket_fallbacks);
}

RankTotals TotalsOf(const ProgressValues& values, const TrainingFigures& figures) {
  RankTotals totals;
  totals.steps = values.steps_done;
  totals.tokens = values.tokens_done;
  totals.samples = figures.samples_done;
  totals.flops = figures.flops_done;
  totals.nonfinite = values.nonfinite;
  totals.wait_seconds = values.wait_seconds;
  totals.step_seconds_sum = values.step_seconds_sum;
  totals.step_seconds_buckets = values.step_seconds_buckets;
  totals.part_seconds = figures.part_seconds;
  totals.time_seconds = figures.time_seconds;
  totals.stage = figures.stage;
  totals.write = figures.write;
  totals.checkpoint_bytes = figures.checkpoint_bytes;
  totals.collective_errors = figures.collective_errors;
  totals.alloc_retries = figures.device.alloc_retries;
  totals.ooms = figures.device.ooms;
  totals.collectives = figures.collectives();
  totals.socket_fallbacks = figures.socket_fallbacks;
  return totals;
}

}  // namespace

RankTotals& RankTotals::operator+=(const RankTotals& other) {
  Combine(*this, other, [](auto& mine, const auto& others) { mine += others; });
  return *this;
}

RankTotals& RankTotals::operator-=(const RankTotals& other) {
  Combine(*this, other, [](auto& mine, const auto& others) { mine -= others; });
  return *this;
}

int RankCounters::Find(const ProcessKey& key) const {
  if (key.pid == 0) return -1;
  for (const auto& [id, process] : processes_) {
    const bool same_start = process.key.start_time == key.start_time ||
                            process.key.start_time == 0 || key.start_time == 0;
    if (process.key.pid == key.pid && same_start) return id;
  }
  return -1;
}

void RankCounters::Take(int rank, Generation generation, const ProcessKey& process) {
  if (generation != generation_) {
    // Survivors of the previous generation may get a rank in this one; those of older ones do not.
    std::erase_if(processes_, [&](const auto& entry) { return entry.second.used < generation_; });
    for (auto& [number, entry] : ranks_) Leave(entry);
    generation_ = generation;
  }
  Rank& entry = ranks_[rank];
  Leave(entry);
  int id = Find(process);
  if (id < 0) {
    id = next_process_++;
    processes_[id].key = process;
  }
  processes_[id].used = generation;
  entry.process = id;
  entry.at_start = processes_[id].counted;
}

void RankCounters::Update(int rank, const ProgressValues& values, const TrainingFigures& figures) {
  const auto entry = ranks_.find(rank);
  if (entry == ranks_.end() || entry->second.process < 0) return;
  processes_.at(entry->second.process).counted = TotalsOf(values, figures);
}

void RankCounters::Leave(Rank& rank) {
  const auto process = processes_.find(std::exchange(rank.process, -1));
  if (process == processes_.end()) return;
  rank.before += process->second.counted;
  rank.before -= rank.at_start;
}

void RankCounters::End(int rank) {
  const auto entry = ranks_.find(rank);
  if (entry == ranks_.end()) return;
  const int process = entry->second.process;
  Leave(entry->second);
  processes_.erase(process);
}

RankTotals RankCounters::Total(int rank) const {
  const auto entry = ranks_.find(rank);
  if (entry == ranks_.end()) return {};
  RankTotals total = entry->second.before;
  const auto process = processes_.find(entry->second.process);
  if (process == processes_.end()) return total;
  total += process->second.counted;
  total -= entry->second.at_start;
  return total;
}

}  // namespace muster::worker
