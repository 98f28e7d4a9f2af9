// Why a job waits, and what would let it start: the question, taken out of the State in one go, and
// its answer, which needs nothing of the State any more.
//
// A question is made on the controller's thread; the first one since a pass takes as long as a
// snapshot for the scheduler. Answers take as long as some passes of it, on any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
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

// What a pass would be given, for any number of questions. It needs nothing of the State, and is
// not copied: it points into itself.
class ScheduleView {
 public:
  ScheduleView() = default;
  ScheduleView(const ScheduleView&) = delete;
  ScheduleView& operator=(const ScheduleView&) = delete;

  // The first thread that asks makes the pass.
  const KnownPlan& Known() const;

  Now now;
  std::uint64_t index = 0;  // of what answers depend on (IndexOf)
  SchedulerSnapshot snapshot;
  QueueTree queues;
  std::deque<NodeInventory> inventories;
  std::vector<GangWithNodes> gangs;
  std::map<JobId, std::string> names;  // of jobs with a gang or a planned start

 private:
  mutable std::once_flag planned_;
  mutable std::optional<KnownPlan> known_;
};

struct WhyQuestion {
  JobId job;
  std::shared_ptr<const ScheduleView> view;
  std::vector<WaitCause> causes;  // that are not the scheduler's
  bool waits = false;             // for a gang: `asked` is there
  Duration beyond_limit = {};     // how much longer than its time limit it may have nodes
  ExplainQuestion asked;
};

// The scheduler's causes, then those of the question.
Explanation Answer(const WhyQuestion& question);

namespace control {

struct JobEntry;
struct State;

// The newest view of the State. It is made anew once a pass has been made or is wanted, and after a
// second, in which only guesses change.
class NewestView {
 public:
  std::shared_ptr<const ScheduleView> Of(const State& state, const Now& now);

 private:
  std::shared_ptr<const ScheduleView> view_;
  std::uint64_t passes_ = 0;  // of the State then
};

// The job must be in memory.
std::shared_ptr<const WhyQuestion> AskWhy(const State& state, NewestView& views, const JobId& job,
                                          const Now& now);
// A job that is not submitted; fails as its submit would.
Result<std::shared_ptr<const WhyQuestion>> AskWhy(const State& state, NewestView& views,
                                                  const ControllerOptions& options,
                                                  const JobSpec& spec, const Now& now);

}  // namespace control
}  // namespace muster
