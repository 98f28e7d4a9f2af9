#include "coordinator/page/problems.h"

#include <algorithm>

#include "common/base/json.h"
#include "coordinator/detect/straggler_detector.h"

namespace muster {
namespace {

constexpr std::size_t kShownProblems = 20;

JobFacts::State StateOf(JobState state) {
  switch (state) {
    case JobState::kQueued: return JobFacts::State::kWaiting;
    case JobState::kStarting: return JobFacts::State::kStarting;
    case JobState::kRunning: return JobFacts::State::kRunning;
    case JobState::kRecovering: return JobFacts::State::kRecovering;
    case JobState::kFailed: return JobFacts::State::kFailed;
    default: return JobFacts::State::kOther;
  }
}

// When the state began, as far as the records show; 0: unknown.
std::int64_t BegunUnixMs(const JobView& view) {
  const std::vector<AttemptRecord>& attempts = *view.attempts;
  switch (view.record->state) {
    case JobState::kFailed: return view.record->ended_unix_ms;
    case JobState::kStarting: return attempts.empty() ? 0 : attempts.back().started_unix_ms;
    case JobState::kRecovering: {
      // An attempt that is being ended has no result yet; the one before it does.
      if (attempts.empty() || attempts.back().state == AttemptState::kAborting) return 0;
      if (attempts.back().state == AttemptState::kEnded) return attempts.back().ended_unix_ms;
      return attempts.size() < 2 ? 0 : attempts[attempts.size() - 2].ended_unix_ms;
    }
    default: return 0;
  }
}

// Why it recovers, even if it no longer waits for anything.
std::string ReasonOf(const JobView& view) {
  const JobRecord& record = *view.record;
  if (std::string reason = view.reason(); record.state != JobState::kRecovering || !reason.empty())
    return reason;
  const auto& attempts = *view.attempts;
  const auto failed =
      std::find_if(attempts.rbegin(), attempts.rend(),
                   [](const AttemptRecord& attempt) { return !attempt.cause.empty(); });
  return failed == attempts.rend() ? std::string() : failed->cause;
}

double SilentSeconds(const JobView& view, const Histories& histories, TimePoint now) {
  const JobHistory* history = histories.Find(view.record->id);
  if (history == nullptr || history->step == 0 || history->generation != view.record->generation)
    return 0;
  return ToSeconds(now - history->stepped_at);
}

std::vector<RankFacts> RanksOf(const JobView& view) {
  std::vector<RankFacts> facts;
  const std::vector<RankRecord>& ranks = view.ranks();
  for (const RankProgress& progress : *view.progress) {
    const auto at = static_cast<std::size_t>(progress.rank);
    if (at >= ranks.size()) continue;
    facts.push_back({.rank = progress.rank,
                     .node = ranks[at].node.value,
                     .step = progress.step,
                     .phase = std::string(TrainPhaseName(progress.phase))});
  }
  return facts;
}

JobFacts FactsOf(const JobView& view, const Histories& histories, const Now& now) {
  const JobRecord& record = *view.record;
  JobFacts facts;
  facts.state = StateOf(record.state);
  facts.id = record.id.value;
  facts.name = record.name;
  facts.reason = ReasonOf(view);
  if (const std::int64_t begun = BegunUnixMs(view); begun > 0)
    facts.state_seconds =
        static_cast<double>(std::max<std::int64_t>(0, now.unix_ms - begun)) / 1000;
  facts.step = record.step;
  facts.loss = record.loss;
  facts.step_seconds = view.step_seconds;
  if (record.state == JobState::kRunning) {
    facts.silent_seconds = SilentSeconds(view, histories, now.mono);
    facts.ranks = RanksOf(view);
    if (const Straggler* slow = view.straggler)
      facts.slow = {slow->rank, slow->node.value, slow->seconds, slow->others_seconds};
  }
  for (const CheckpointRecord& checkpoint : *view.checkpoints) {
    if (checkpoint.state != CheckpointState::kCommitted || checkpoint.refused.empty()) continue;
    ++facts.damaged_checkpoints;
    facts.damage = checkpoint.refused;
  }
  return facts;
}

NodeFacts FactsOf(const NodeRecord& node) {
  NodeFacts facts;
  if (node.state == NodeState::kLost || node.state == NodeState::kSuspect)
    facts.state = NodeFacts::State::kGone;
  if (node.state == NodeState::kQuarantined) facts.state = NodeFacts::State::kQuarantined;
  facts.state_word = Name(node.state);
  facts.name = facts.shell_name = node.name.value;
  facts.reason = node.reason;
  if (!node.notices.empty()) facts.notice = node.notices.front().Text();
  return facts;
}

std::string Capitalized(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z')
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

}  // namespace

std::vector<Problem> FindProblems(const std::vector<JobView>& jobs,
                                  const std::vector<NodeView>& nodes, const Histories& histories,
                                  const Now& now) {
  std::vector<Problem> problems;
  for (const JobView& view : jobs) FindJobProblems(FactsOf(view, histories, now), &problems);
  for (const NodeView& view : nodes) FindNodeProblems(FactsOf(*view.record), &problems);
  SortProblems(&problems);
  return problems;
}

std::string ProblemsPart(const std::vector<Problem>& problems) {
  nlohmann::json first = nlohmann::json::array();
  for (std::size_t i = 0; i < std::min(problems.size(), kShownProblems); ++i) {
    const Problem& problem = problems[i];
    first.push_back({{"severity", Name(SeverityOf(problem.kind))},
                     {"text", Capitalized(problem.text)},
                     {"command", problem.command},
                     {"job", problem.job}});
  }
  return nlohmann::json({{"count", problems.size()}, {"first", first}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace muster
