#include "tests/simulation/sim_sampler.h"

#include <algorithm>

namespace muster::sim {
namespace {

TrainPhase PhaseOf(const SimProcess& process) {
  switch (process.state) {
    case SimProcess::State::kStandby: return TrainPhase::kStandby;
    case SimProcess::State::kForming: return TrainPhase::kForming;
    case SimProcess::State::kLoading: return TrainPhase::kLoading;
    case SimProcess::State::kParked: return TrainPhase::kParked;
    case SimProcess::State::kTraining: return TrainPhase::kForward;
    default: return TrainPhase::kStarting;
  }
}

RankProgress Read(Generation generation, int number, const SimProcess& process) {
  RankProgress rank;
  rank.rank = number;
  rank.phase = PhaseOf(process);
  rank.stores = process.stores;
  rank.steps_done = process.steps_done;
  if (process.alive()) rank.process_state = process.stopped ? "T" : "S";
  rank.collectives.push_back({.group = "world",
                              .enqueued = process.joined,
                              .started = process.joined,
                              .completed = process.completed});
  // Until it has loaded its state, what it says of training is of the generation before.
  if (process.generation != generation || process.state != SimProcess::State::kTraining) {
    return rank;
  }
  rank.step = std::max<Step>(process.step, 0);
  rank.step_seconds = process.step_seconds;
  return rank;
}

}  // namespace

void SimSampler::AddPage(const JobId& job, Generation generation, int rank, ProcessPtr process) {
  Gang& gang = gangs_[job];
  if (gang.generation != generation) gang = {.generation = generation, .ranks = {}, .gate = {}};
  gang.ranks[rank] = std::move(process);
  gang.gate.BeginRank(rank);
}

void SimSampler::EndRank(const JobId& job, int rank) {
  const auto gang = gangs_.find(job);
  if (gang != gangs_.end() && gang->second.ranks.contains(rank)) gang->second.gate.EndRank(rank);
}

std::vector<Progress> SimSampler::Sample(TimePoint now, Duration interval) {
  std::vector<Progress> all;
  for (auto& [job, gang] : gangs_) {
    std::vector<RankProgress> samples;
    for (const auto& [rank, process] : gang.ranks)
      samples.push_back(Read(gang.generation, rank, *process));
    if (!gang.gate.Observe(&samples, now, interval)) continue;
    all.push_back({.job = job, .generation = gang.generation, .ranks = std::move(samples)});
  }
  return all;
}

}  // namespace muster::sim
