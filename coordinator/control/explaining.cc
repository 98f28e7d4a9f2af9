#include "coordinator/control/explaining.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/giving_way.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/job_requests.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/scheduler_snapshot.h"
#include "coordinator/control/shares.h"
#include "coordinator/scheduler/step_function.h"

namespace muster {

const KnownPlan& ScheduleView::Known() const {
  std::call_once(planned_, [this] { known_.emplace(snapshot, gangs); });
  return *known_;
}

namespace {

// Nodes that could hold a part of its gang, and are not ready, by their state.
void AddHealthCauses(const ScheduleView& view, const GangRequest& request,
                     std::vector<WaitCause>& all) {
  constexpr std::size_t kNamed = 16;
  std::map<std::string, WaitCause> causes;
  for (const auto& [intact, state] : view.away) {
    if (MissOf(request, intact)) continue;
    WaitCause& cause = causes[state];
    cause.code = WaitCode::kHealth;
    cause.state = state;
    ++cause.nodes;
    if (cause.names.size() < kNamed) cause.names.push_back(intact.name);
  }
  for (auto& [state, cause] : causes) all.push_back(std::move(cause));
}

// Ready nodes on which it would have more room without the jobs of other workers.
void AddElsewhereCauses(const ScheduleView& view, const GangRequest& request,
                        std::vector<WaitCause>& all) {
  constexpr int kMost = 16;
  if (request.demand.device_count() == 0) return;
  int added = 0;
  for (const auto& [intact, free, notices] : view.used_elsewhere) {
    const NodeMatch match = Match(request.demand, *intact.inventory);
    const bool has_room = LackOf(request.demand, *intact.inventory, match, free) == Lack::kNothing;
    if (has_room || MissOf(request, intact)) continue;
    for (const std::string& notice : notices)
      if (++added <= kMost)
        all.push_back(
            {.code = WaitCode::kElsewhere, .nodes = 1, .names = {intact.name}, .text = notice});
  }
}

}  // namespace

Explanation Answer(const WhyQuestion& question) {
  Explanation explanation;
  if (question.waits) explanation = Explain(question.view->Known(), question.asked);
  if (explanation.placement) return explanation;
  std::vector<WaitCause>& causes = explanation.causes;
  for (WaitCause& cause : causes)
    if (cause.user == kAnyUser) cause.user = question.owner;
  causes.insert(causes.end(), question.causes.begin(), question.causes.end());
  const GangRequest* request =
      question.waits ? RequestOf(question.view->Known(), question.asked) : nullptr;
  if (request == nullptr) return explanation;
  AddHealthCauses(*question.view, *request, causes);
  AddElsewhereCauses(*question.view, *request, causes);
  return explanation;
}

namespace control {
namespace {

// Seconds of evaluations and checkpoints for each step, as its first rank has measured them.
double SecondsBetweenSteps(const JobEntry& job) {
  if (job.progress.empty() || job.progress.front().steps_done <= 0) return 0;
  const RankProgress& first = job.progress.front();
  double seconds = 0;
  for (const TrainPhase phase : {TrainPhase::kEvaluating, TrainPhase::kCheckpoint})
    if (const auto at = static_cast<std::size_t>(phase); at < first.phase_seconds.size())
      seconds += first.phase_seconds[at];
  return seconds / static_cast<double>(first.steps_done);
}

// When its gang ends: by its time limit, else by its steps and an export, which takes about as long
// as a checkpoint, with a fifth more for a slow hour.
GangWithNodes GangOf(const State& state, const JobEntry& job, const Now& now) {
  constexpr double kPrudence = 1.2;
  GangWithNodes gang{.job = job.record.id,
                     .nodes = {},
                     .lent = job.attempts.back().lent,
                     .queue = ShareOf(state, job),
                     .ends = job.ends_at.value_or(kNever)};
  for (const NodeName& name : state.holds.Nodes(job.record.id)) gang.nodes.push_back(name);
  const Step left = job.record.max_steps - job.record.step;
  if (gang.ends == kNever && job.spec.train && job.step_seconds > 0 && left >= 0 &&
      job.record.max_steps > 0) {
    const double pace = job.step_seconds + SecondsBetweenSteps(job);
    const double seconds = static_cast<double>(left) * pace + job.record.checkpoint_seconds;
    gang.ends = now.mono + FromSeconds(kPrudence * seconds);
    gang.predicted = true;
  }
  return gang;
}

// What keeps it back, whatever the nodes have.
std::vector<WaitCause> OwnCauses(const JobEntry& job) {
  std::vector<WaitCause> causes;
  if (job.record.state == JobState::kSuspended) causes.push_back({.code = WaitCode::kSuspended});
  const bool queued = job.record.state == JobState::kQueued;
  if (job.record.held && (queued || job.record.state == JobState::kSuspended))
    causes.push_back({.code = WaitCode::kHeld, .text = job.record.hold_reason});
  if (job.begin_at && queued) causes.push_back({.code = WaitCode::kBegin, .at = *job.begin_at});
  if (job.not_before && job.pending())
    causes.push_back({.code = WaitCode::kBackoff, .at = *job.not_before});
  return causes;
}

// Other queues that take jobs and allow its time limit.
std::vector<int> QueuesFor(const QueueTree& tree, const ShareTree& shares, const JobEntry& job) {
  std::vector<int> queues;
  for (const QueueSpec& queue : tree.queues) {
    const bool allows = queue.time_limit_seconds == 0 ||
                        (job.record.time_limit_seconds > 0 &&
                         job.record.time_limit_seconds <= queue.time_limit_seconds);
    if (queue.leaf && allows && queue.name != QueueOf(job))
      queues.push_back(shares.FindOrAny(queue.name, job.record.owner));
  }
  return queues;
}

// How much longer than its time limit it may have nodes from now on.
Duration BeyondLimitFromNow(const JobEntry& job, const Now& now) {
  const JobRecord& record = job.record;
  if (record.started_unix_ms == 0) return BeyondLimit(job);
  // Its limit stands still while it is set aside.
  const bool aside = record.suspended_unix_ms > 0;
  const std::int64_t until = aside ? record.suspended_unix_ms : now.unix_ms;
  return (aside ? BeyondLimit(job) : StopAllowance(job)) -
         std::chrono::milliseconds(until - record.started_unix_ms - record.suspended_ms);
}

// Gangs that give way to the job.
void AddClaims(const State& state, WhyQuestion& question) {
  for (const JobId& id : state.claimed) {
    const JobEntry& victim = state.jobs.at(id);
    const ReclaimRecord& reclaim = victim.record.reclaim;
    if (!IsGivingWay(victim) || reclaim.claimant != question.job) continue;
    const Now& now = question.view->now;
    question.causes.push_back({.code = WaitCode::kReclaim,
                               .nodes = static_cast<int>(reclaim.gives_up.size()),
                               .job = id,
                               .at = MonotonicOf(now, reclaim.by_unix_ms),
                               .text = CostText(VictimCost(victim, now))});
  }
}

using View = std::shared_ptr<const ScheduleView>;
using Question = std::shared_ptr<const WhyQuestion>;

// `added`: the job is not submitted; it would be the last of its priority.
Question AskAbout(const State& state, View view, const JobEntry& job, bool added) {
  auto question = std::make_shared<WhyQuestion>();
  question->job = job.record.id;
  question->owner = job.record.owner;
  question->view = std::move(view);
  question->causes = OwnCauses(job);
  if (!MayBePlaced(job)) return question;
  const Now& now = question->view->now;
  AddClaims(state, *question);
  question->waits = true;
  question->beyond_limit = BeyondLimitFromNow(job, now);
  ExplainQuestion& asked = question->asked;
  asked.job = job.record.id;
  const ShareTree& shares = question->view->shares;
  asked.queues = QueuesFor(state.queues, shares, job);
  asked.kept_away = job.backoff.Paused();
  asked.least_length = question->beyond_limit + std::chrono::seconds(1);
  if (added) asked.added = RequestOf(state, now, job, shares);
  return question;
}

// What questions ask of nodes beside what the scheduler is given.
void AddNodes(const State& state, ScheduleView& view) {
  for (const auto& [name, node] : state.nodes) {
    const auto intact = [&view, &node = node] {
      NodeCapacity capacity = IntactOf(node);
      capacity.inventory = &view.inventories.emplace_back(*capacity.inventory);
      return capacity;
    };
    if (!IsReady(node)) {
      const bool away = node.record.state == NodeState::kReady;
      view.away.push_back({intact(), away ? "disconnected" : std::string(Name(node.record.state))});
      continue;
    }
    std::vector<std::string> notices;
    for (const NoticeRecord& notice : node.record.notices)
      if (!notice.in_use.empty()) notices.push_back(notice.detail);
    if (!notices.empty())
      view.used_elsewhere.push_back({intact(), CapacityOf(state, node).free, std::move(notices)});
  }
}

std::shared_ptr<const ScheduleView> ViewOf(const State& state, const Now& now) {
  auto view = std::make_shared<ScheduleView>();
  view->now = now;
  view->index = IndexOf(state, now);
  view->shares = state.shares;
  view->shares.AddAnyUser();
  view->snapshot = SnapshotOf(state, now, /*always_nodes=*/true);
  view->snapshot.queues = &view->shares.tree();
  for (NodeCapacity& node : view->snapshot.nodes)
    node.inventory = &view->inventories.emplace_back(*node.inventory);
  AddNodes(state, *view);
  for (const auto& [id, job] : state.with_gang) view->gangs.push_back(GangOf(state, *job, now));
  for (const auto& [id, job] : state.live)
    view->names.emplace_hint(view->names.end(), id, job->record.name);
  return view;
}

}  // namespace

View NewestView::Of(const State& state, const Now& now) {
  Expire(state, now);
  if (!view_) view_ = ViewOf(state, now);
  changes_ = state.changes;
  return view_;
}

void NewestView::Expire(const State& state, const Now& now) {
  constexpr Duration kLasts = std::chrono::seconds(1);
  if (view_ &&
      (changes_ != state.changes || state.NextPass() || now.mono - view_->now.mono > kLasts))
    view_.reset();
}

Question AskWhy(const State& state, NewestView& newest, const JobId& job, const Now& now) {
  return AskAbout(state, newest.Of(state, now), state.jobs.at(job), /*added=*/false);
}

Result<Question> AskWhy(const State& state, NewestView& newest, const ControllerOptions& options,
                        const JobSpec& spec, const std::string& owner, const Now& now,
                        const JobFilter& sees) {
  MUSTER_ASSIGN_OR_RETURN(const JobEntry job,
                          NewJob(state, options, now, spec, JobId{"new"}, owner, sees));
  return AskAbout(state, newest.Of(state, now), job, /*added=*/true);
}

}  // namespace control
}  // namespace muster
