// Histories: curves and step times of the jobs that a coordinator has seen train.
//
// Owned by the server, which passes a job's view whenever it has changed; the loop's thread, but
// pure: time is an argument. An Observe without a new step costs one lookup in a map. Bounded:
// kMaxJobs jobs of some 50 kB; beyond that the one with the oldest report is dropped.
//
// A restarted coordinator has not seen a job's earlier steps: WantsPast returns true once, and
// TakePast takes what was read from the job's metrics.jsonl (metrics_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "common/base/clock.h"
#include "coordinator/control/controller.h"
#include "coordinator/history/step_curves.h"
#include "coordinator/history/step_durations.h"

namespace muster {

struct JobHistory {
  StepCurves curves;
  StepDurations times;
  TimePoint stepped_at;  // when its newest step was reported
  Step step = 0;         // that step
  Step first_step = 0;   // the first that was reported
  Generation generation = 0;
  bool past_asked = false;
  TimePoint heard_at;
};

class Histories {
 public:
  static constexpr std::size_t kMaxJobs = 512;

  void Observe(const JobView& view, TimePoint now);
  // nullptr: it has not trained since this coordinator started, or it was dropped.
  const JobHistory* Find(const JobId& job) const;

  // True once per job that has steps which were not seen.
  bool WantsPast(const JobView& view, TimePoint now);
  void TakePast(const JobId& job, StepCurves past);

  std::size_t size() const { return jobs_.size(); }

 private:
  JobHistory& Entry(const JobId& job, TimePoint now);

  std::map<JobId, JobHistory> jobs_;
};

}  // namespace muster
