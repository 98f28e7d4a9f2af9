#include "coordinator/control/queues.h"

#include <bit>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/strings.h"
#include "coordinator/control/answer.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/queue_usage.h"
#include "coordinator/control/shares.h"

namespace muster::control {
namespace {

// What the nodes could give to jobs if none had any.
Amounts ClusterAmounts(const State& state) {
  Amounts sum;
  for (const auto& [name, node] : state.nodes) {
    if (node.record.state == NodeState::kLost) continue;
    const NodeParts all = WholeOf(state, node).all;
    sum += {std::popcount(all.devices), all.slots};
  }
  return sum;
}

// Jobs that are not over, by a name that the new tree does not have.
using JobsByName = std::map<std::string_view, std::vector<const JobEntry*>>;

Status Refused(const JobsByName& without, const std::string& kind, const std::string& why) {
  constexpr std::size_t kNamed = 3;
  if (without.empty()) return OkStatus();
  const auto& [name, jobs] = *without.begin();
  std::string named;
  for (std::size_t i = 0; i < std::min(kNamed, jobs.size()); ++i)
    named += (i > 0 ? ", " : "") + jobs[i]->record.id.value + " (" + jobs[i]->record.name + ")";
  if (jobs.size() > kNamed) named += " and " + std::to_string(jobs.size() - kNamed) + " others";
  return FailedPrecondition(
      kind + " " + std::string(name) + " " + why + ", and " + std::to_string(jobs.size()) +
      (jobs.size() == 1 ? " job that is not over is" : " jobs that are not over are") +
      " in it: " + named + "\n  next: muster update JOB --" + kind +
      " NAME for each of them, then apply the file again");
}

Status CheckJobsHavePlaces(const State& state, const QueueTree& tree) {
  std::set<std::string_view> leaves;
  std::set<std::string_view> classes;
  for (const QueueSpec& queue : tree.queues)
    if (queue.leaf) leaves.insert(queue.name);
  for (const PriorityClass& each : tree.classes) classes.insert(each.name);
  JobsByName without_queue;
  JobsByName without_class;
  for (const auto& [id, live] : state.live) {
    const JobEntry& job = *live;
    if (!leaves.contains(QueueOf(job))) without_queue[QueueOf(job)].push_back(&job);
    if (!classes.contains(ClassOf(job))) without_class[ClassOf(job)].push_back(&job);
  }
  const bool divides = !without_queue.empty() && tree.Find(without_queue.begin()->first) >= 0;
  MUSTER_RETURN_IF_ERROR(Refused(without_queue, "queue",
                                 divides ? "would have queues of its own" : "would be removed"));
  return Refused(without_class, "class", "would be removed");
}

// The first queue that limits its users.
std::optional<std::string> LimitedPerUser(const QueueTree& tree) {
  for (const QueueSpec& queue : tree.queues)
    if (queue.per_user != UserLimits()) return queue.name;
  return std::nullopt;
}

Result<QueuesAccepted> Apply(Transaction& tx, const QueuesApplyRequested& request) {
  State& state = tx.state;
  const std::uint64_t current = state.queues.version;
  MUSTER_ASSIGN_OR_RETURN(QueueTree tree, request.tree);
  const bool same = request.yaml == state.queues_yaml;
  // A call is repeated where its answer was lost.
  const bool repeated = same && request.expected_version + 1 == current;
  if (!request.check_only && !repeated && request.expected_version != current)
    return Aborted("the queues have version " + std::to_string(current) +
                   ", and this file was to replace version " +
                   std::to_string(request.expected_version) +
                   ": another file was applied in between\n  next: muster queues show -o yaml, and "
                   "make your change in that file");
  MUSTER_RETURN_IF_ERROR(CheckJobsHavePlaces(state, tree));
  QueuesAccepted accepted{.version = current,
                          .changes = QueueChanges(state.queues, tree),
                          .warnings = QueueWarnings(tree, ClusterAmounts(state))};
  if (const auto limited = LimitedPerUser(tree); limited && !state.users.in_force())
    accepted.warnings.push_back("per_user of queue " + *limited +
                                " has no effect before users are applied");
  if (request.check_only || same) return accepted;
  tree.version = accepted.version = current + 1;
  const std::int64_t half_life = state.queues.half_life_seconds;
  state.queues = std::move(tree);
  RebuildShares(state);
  RebookUsage(tx, half_life);
  state.queues_yaml = request.yaml;
  state.reschedule = true;
  tx.Write(PutQueues{{accepted.version, request.yaml}});
  std::string text = "queues: version " + std::to_string(accepted.version);
  for (const std::string& change : accepted.changes)
    text += (&change == &accepted.changes.front() ? ": " : "; ") + change;
  tx.RecordClusterEvent({"queues_applied", Severity::kInfo, std::move(text)});
  return accepted;
}

void AddTo(QueueView& parent, const QueueView& child) {
  parent.used += child.used;
  parent.usage_share += child.usage_share;
  parent.running += child.running;
  parent.waiting += child.waiting;
}

}  // namespace

QueuesView QueueViews(const State& state) {
  const std::vector<QueueSpec>& specs = state.queues.queues;
  QueuesView view{.tree = &state.queues, .yaml = &state.queues_yaml};
  view.shares = &state.shares;
  view.queues.resize(specs.size());
  view.users.resize(state.shares.leaf_count());
  std::vector<double> weights(specs.size() + 1);  // of the children; at the end of the top's
  const auto above = [&](const QueueSpec& spec) {
    return spec.parent < 0 ? specs.size() : static_cast<std::size_t>(spec.parent);
  };
  for (std::size_t i = 0; i < specs.size(); ++i) {
    weights[above(specs[i])] += specs[i].weight;
  }
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const std::size_t parent = above(specs[i]);
    const double of_parent = parent == specs.size() ? 1 : view.queues[parent].share;
    view.queues[i].share = of_parent * specs[i].weight / weights[parent];
  }
  for (const auto& [id, live] : state.live) {
    const JobEntry& job = *live;
    const int share = ShareOf(state, job);
    if (share < 0) continue;
    const auto place = static_cast<std::size_t>(share);
    QueueView& queue = place < specs.size() ? view.queues[place] : view.users[place - specs.size()];
    if (job.gang) {
      queue.used += AmountsOf(job);
      ++queue.running;
    }
    if (job.pending()) ++queue.waiting;
  }
  const std::vector<double> usage = UsageOfQueues(state);
  const double all = std::accumulate(usage.begin(), usage.end(), 0.0);
  const std::vector<QueueSpec>& shares = state.shares.tree().queues;
  for (std::size_t i = shares.size(); i-- > 0;) {
    QueueView& has = i < specs.size() ? view.queues[i] : view.users[i - specs.size()];
    if (all > 0) has.usage_share += usage[i] / all;
    if (shares[i].parent >= 0) AddTo(view.queues[above(shares[i])], has);
  }
  return view;
}

void On(Transaction& tx, const QueuesApplyRequested& request) {
  Answer(tx, request, [&] { return Apply(tx, request); });
}

}  // namespace muster::control
