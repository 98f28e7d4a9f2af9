#include "coordinator/page/problems.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

using Kind = Problem::Kind;

constexpr std::size_t kTold = 20;
// How long a failed job is the first thing to be said.
constexpr std::int64_t kNewsMillis = 10 * 60 * 1000;
// A job that has finished no step for so many of its usual steps, and at least for so long, is
// told. What to do about it the controller decides by itself, and sooner.
constexpr double kSilentSteps = 10;
constexpr double kSilentSeconds = 15;

// What stands in the queue is no trouble of each job: the first one says what it waits for.
void JoinWaiting(std::vector<Problem>* problems) {
  const auto first = std::find_if(problems->begin(), problems->end(), [](const Problem& problem) {
    return problem.kind == Kind::kWaiting;
  });
  const auto more = problems->end() - first - 1;
  if (more <= 0) return;
  first->text += "; " + std::to_string(more) + (more == 1 ? " more waits" : " more wait");
  problems->erase(first + 1, problems->end());
}

std::string Because(const std::string& reason) { return reason.empty() ? "" : ": " + reason; }

double SilentSeconds(const JobView& view, const Histories& histories, TimePoint now) {
  const JobHistory* history = histories.Find(view.record->id);
  if (history == nullptr || history->step == 0 || history->generation != view.record->generation)
    return 0;
  return ToSeconds(now - history->stepped_at);
}

// What is wrong with a job that runs; empty: nothing.
std::string Trouble(const JobView& view, double silent, Kind* kind) {
  if (std::isnan(view.loss)) {
    *kind = Kind::kNotFinite;
    return "has a loss that is not a number, at step " + std::to_string(view.step);
  }
  if (silent <= std::max(kSilentSeconds, kSilentSteps * view.step_seconds)) return "";
  *kind = Kind::kNoProgress;
  return "has not finished a step for " + std::to_string(static_cast<std::int64_t>(silent)) + " s";
}

void AddJob(const JobView& view, const Histories& histories, const Now& now,
            std::vector<Problem>* out) {
  const JobRecord& record = *view.record;
  Kind kind = Kind::kWaiting;
  std::string text;
  switch (record.state) {
    case JobState::kFailed:
      if (now.unix_ms - record.ended_unix_ms >= kNewsMillis) return;
      kind = Kind::kFailed;
      text = "failed" + Because(record.reason);
      break;
    case JobState::kRecovering:
      kind = Kind::kRecovering;
      text = "is recovering" + Because(record.reason);
      break;
    case JobState::kQueued:
      if (!record.reason.empty()) text = "waits" + Because(record.reason);
      break;
    case JobState::kRunning:
      text = Trouble(view, SilentSeconds(view, histories, now.mono), &kind);
      break;
    default: break;
  }
  if (text.empty()) return;
  const std::string& name = record.name.empty() ? record.id.value : record.name;
  out->push_back(
      {kind, "Job " + name + " " + text, "muster describe " + record.id.value, record.id});
}

void AddNode(const NodeView& view, std::vector<Problem>* out) {
  const NodeRecord& node = *view.record;
  const std::string name = "Node " + node.name.value;
  switch (node.state) {
    case NodeState::kLost:
    case NodeState::kSuspect:
      out->push_back({Kind::kNodeLost,
                      name + " is " + std::string(Name(node.state)) + Because(node.reason),
                      "muster nodes -o wide",
                      {}});
      break;
    case NodeState::kQuarantined:
      out->push_back({Kind::kNodeLost,
                      name + " is quarantined" + Because(node.reason),
                      "muster undrain " + node.name.value,
                      {}});
      break;
    default: break;
  }
  if (!node.notices.empty())
    out->push_back({Kind::kNodeNotice, name + Because(node.notices.front()), "muster nodes", {}});
}

}  // namespace

std::vector<Problem> FindProblems(const std::vector<JobView>& jobs,
                                  const std::vector<NodeView>& nodes, const Histories& histories,
                                  const Now& now) {
  std::vector<Problem> problems;
  for (const JobView& view : jobs) AddJob(view, histories, now, &problems);
  for (const NodeView& view : nodes) AddNode(view, &problems);
  std::stable_sort(problems.begin(), problems.end(),
                   [](const Problem& a, const Problem& b) { return a.kind < b.kind; });
  JoinWaiting(&problems);
  return problems;
}

std::string ProblemsPart(const std::vector<Problem>& problems) {
  static constexpr const char* kSeverities[] = {"error", "error",   "warning", "warning",
                                                "error", "warning", "info"};
  nlohmann::json first = nlohmann::json::array();
  for (std::size_t i = 0; i < std::min(problems.size(), kTold); ++i) {
    const Problem& problem = problems[i];
    first.push_back({{"severity", kSeverities[static_cast<std::size_t>(problem.kind)]},
                     {"text", problem.text},
                     {"command", problem.command},
                     {"job", problem.job.value}});
  }
  return nlohmann::json({{"count", problems.size()}, {"first", first}})
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace muster
