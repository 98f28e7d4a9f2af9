// Why a job waits, and what would let it start: the question, taken out of the State in one go, and
// its answer, which needs nothing of the State any more.
//
// A question is made on the controller's thread and takes as long as a snapshot for the scheduler.
// Answers take as long as some passes of it, on any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "coordinator/control/events.h"
#include "coordinator/control/options.h"
#include "coordinator/queues/queue_tree.h"
#include "coordinator/scheduler/explanation.h"

namespace muster {

// A snapshot that needs nothing of the State. Not copied: it points into itself.
struct DetachedSnapshot {
  DetachedSnapshot() = default;
  DetachedSnapshot(const DetachedSnapshot&) = delete;
  DetachedSnapshot& operator=(const DetachedSnapshot&) = delete;

  Now now;
  SchedulerSnapshot snapshot;
  QueueTree queues;
  std::deque<NodeInventory> inventories;
};

struct WhyQuestion : DetachedSnapshot {
  JobId job;
  std::uint64_t index = 0;             // of what the answer depends on (IndexOf)
  std::vector<WaitCause> causes;       // that are not the scheduler's
  bool waits = false;                  // for a gang: `snapshot` and `asked` are there
  Duration beyond_limit = {};          // how much longer than its time limit it may have nodes
  std::map<JobId, std::string> names;  // of jobs that are not over
  ExplainQuestion asked;
};

// The scheduler's causes, then those of the question.
Explanation Answer(const WhyQuestion& question);

namespace control {

struct JobEntry;
struct State;

// What a pass would be given now.
std::shared_ptr<const DetachedSnapshot> DetachSnapshot(const State& state, const Now& now);

// The job must be in memory.
std::shared_ptr<const WhyQuestion> AskWhy(const State& state, const JobId& job, const Now& now);
// A job that is not submitted; fails as its submit would.
Result<std::shared_ptr<const WhyQuestion>> AskWhy(const State& state,
                                                  const ControllerOptions& options,
                                                  const JobSpec& spec, const Now& now);

}  // namespace control
}  // namespace muster
