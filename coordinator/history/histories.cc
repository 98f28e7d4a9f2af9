#include "coordinator/history/histories.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace muster {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double IfPositive(double value) { return value > 0 ? value : kUnknown; }

// Whether a page describes the newest step. A process that resumes from it has no figures of it.
bool IsOf(const JobView& view, const RankProgress& rank) {
  return rank.step == view.record->step && rank.step_seconds > 0;
}

// The figures of the newest step in the ranks' pages.
StepSample SampleOf(const JobView& view) {
  StepSample sample{
      view.record->step, view.record->generation, {kUnknown, kUnknown, kUnknown, kUnknown}};
  double step_seconds = 0;
  std::uint64_t peak = 0;
  for (const RankProgress& rank : *view.progress) {
    peak = std::max(peak, TrainingMemoryBytes(rank));
    if (!IsOf(view, rank)) continue;
    step_seconds = std::max(step_seconds, rank.step_seconds);
    sample.values[static_cast<std::size_t>(Curve::kLoss)] = rank.loss;  // the whole job's
  }
  sample.values[static_cast<std::size_t>(Curve::kStepSeconds)] = IfPositive(step_seconds);
  sample.values[static_cast<std::size_t>(Curve::kMemoryBytes)] =
      IfPositive(static_cast<double>(peak));
  sample.values[static_cast<std::size_t>(Curve::kTokensPerSecond)] =
      IfPositive(view.tokens_per_second);
  return sample;
}

}  // namespace

JobHistory& Histories::Entry(const JobId& job, TimePoint now) {
  const auto known = jobs_.find(job);
  if (known != jobs_.end()) {
    known->second.heard_at = now;
    return known->second;
  }
  if (jobs_.size() >= kMaxJobs) {
    jobs_.erase(std::min_element(jobs_.begin(), jobs_.end(), [](const auto& a, const auto& b) {
      return a.second.heard_at < b.second.heard_at;
    }));
  }
  JobHistory& entry = jobs_[job];
  entry.heard_at = now;
  return entry;
}

void Histories::Observe(const JobView& view, TimePoint now) {
  // Without pages of ranks, the step is one that an earlier coordinator or attempt has seen.
  if (view.record->step <= 0 || view.progress->empty()) return;
  if (const JobHistory* known = Find(view.record->id); known != nullptr &&
                                                       known->step == view.record->step &&
                                                       known->generation == view.record->generation)
    return;
  // A gang begins at a step that an earlier one has finished.
  if (view.attempts != nullptr && !view.attempts->empty() &&
      view.record->step <= view.attempts->back().resumed_step)
    return;
  if (std::ranges::none_of(*view.progress, [&](const RankProgress& r) { return IsOf(view, r); }))
    return;
  JobHistory& entry = Entry(view.record->id, now);
  const StepSample sample = SampleOf(view);
  const bool goes_on = entry.generation == sample.generation && entry.step < sample.step;
  const auto steps = goes_on && entry.step > 0 ? sample.step - entry.step : 1;
  if (entry.first_step == 0) entry.first_step = sample.step;
  entry.curves.Add(sample);
  entry.times.Add(sample.values[static_cast<std::size_t>(Curve::kStepSeconds)],
                  static_cast<std::uint64_t>(steps));
  entry.step = sample.step;
  entry.generation = sample.generation;
  entry.stepped_at = now;
}

const JobHistory* Histories::Find(const JobId& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

bool Histories::WantsPast(const JobView& view, TimePoint now) {
  if (view.record->step <= 1) return false;
  const JobHistory* known = Find(view.record->id);
  if (known != nullptr && (known->past_asked || known->first_step == 1)) return false;
  Entry(view.record->id, now).past_asked = true;
  return true;
}

void Histories::TakePast(const JobId& job, StepCurves past) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  past.Append(found->second.curves);
  found->second.curves = std::move(past);
}

}  // namespace muster
