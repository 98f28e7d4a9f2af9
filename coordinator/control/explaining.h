// Why a job waits, and what would let it start: the question, taken out of the State in one go, and
// its answer, which needs nothing of the State any more.
// A question is made on the controller's thread. It takes as long as a snapshot for the scheduler
// if the newest view is out of date, else a look at the job. Answers come from any thread. The
// first one about a view makes that view's pass; what makes others take passes of their own is in
// coordinator/scheduler/explanation.h.
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
#include "coordinator/control/views.h"
#include "coordinator/queues/share_tree.h"
#include "coordinator/scheduler/explanation.h"

namespace muster {

// What a pass would be given, for any number of questions. It needs nothing of the State, and is
// not copied: it points into itself. Filled by the controller's thread before it is shared, then
// const: any thread.
class ScheduleView {
 public:
  ScheduleView() = default;
  ScheduleView(const ScheduleView&) = delete;
  ScheduleView& operator=(const ScheduleView&) = delete;

  // Makes the pass at the first call; calls meanwhile wait for it.
  const KnownPlan& Known() const;

  Now now;
  std::uint64_t index = 0;  // of what answers depend on (IndexOf)
  SchedulerSnapshot snapshot;
  ShareTree shares;  // with a leaf for owners who have none (AddAnyUser)
  std::deque<NodeInventory> inventories;
  std::vector<GangWithNodes> gangs;
  std::map<JobId, std::string> names;  // of jobs that are not over

  // What a node could have for jobs if nothing were broken, and why no job gets it.
  struct AwayNode {
    NodeCapacity intact;
    std::string state;
  };
  std::vector<AwayNode> away;
  // A ready node with devices in use elsewhere, what is free there, and what its notices say of it.
  struct SharedNode {
    NodeCapacity intact;
    NodeParts free;
    std::vector<std::string> notices;
  };
  std::vector<SharedNode> used_elsewhere;

 private:
  mutable std::once_flag planned_;
  mutable std::optional<KnownPlan> known_;
};

struct WhyQuestion {
  JobId job;
  std::string owner;
  std::shared_ptr<const ScheduleView> view;
  std::vector<WaitCause> causes;  // that neither the scheduler nor the view has
  bool waits = false;             // for a gang: `asked` is there
  Duration beyond_limit = {};     // how much longer than its time limit it may have nodes
  ExplainQuestion asked;
};

// The scheduler's causes, then those of the question, then those of the view's nodes.
Explanation Answer(const WhyQuestion& question);

namespace control {

struct JobEntry;
struct State;

// The newest view of the State, made anew when State::changes has risen, while a pass is wanted,
// and after a second: until then only predicted ends and what gangs cost as victims may be old.
class NewestView {
 public:
  std::shared_ptr<const ScheduleView> Of(const State& state, const Now& now);
  // Lets go of a view that Of would not return any more.
  void Expire(const State& state, const Now& now);

 private:
  std::shared_ptr<const ScheduleView> view_;
  std::uint64_t changes_ = 0;  // of the State then
};

// The job must be in memory.
std::shared_ptr<const WhyQuestion> AskWhy(const State& state, NewestView& newest, const JobId& job,
                                          const Now& now);
// A job that is not submitted, as its owner would submit it; fails as its submit would, and
// names no job then that `sees` does not take.
Result<std::shared_ptr<const WhyQuestion>> AskWhy(const State& state, NewestView& newest,
                                                  const ControllerOptions& options,
                                                  const JobSpec& spec, const std::string& owner,
                                                  const Now& now, const JobFilter& sees);

}  // namespace control
}  // namespace muster
