#include "cli/top/top_model.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "cli/output.h"

namespace muster {
namespace {

// A job that has finished no step for so long is told: so many of its usual steps, and at least so
// many seconds. What to do about it the coordinator decides by itself, and sooner.
constexpr double kSilentSteps = 10;
constexpr double kSilentSeconds = 15;
// How long a failed job is the first thing to be said.
constexpr std::int64_t kNewsMillis = 10 * 60 * 1000;

const v1::RankProgress* First(const v1::Job& job) {
  for (const auto& progress : job.progress())
    if (progress.rank() == 0) return &progress;
  return nullptr;
}

void NoteStep(const v1::Job& job, std::int64_t now, JobHistory* history) {
  if (history->step == job.step()) return;
  history->step = job.step();
  history->step_since_unix_ms = now;
  if (job.step() > 0 && HasLoss(job)) history->loss.Add(job.step(), job.loss());
}

std::string NameOf(const v1::Job& job) {
  return "job " + Printable(job.name().empty() ? job.id() : job.name());
}

std::string Because(const std::string& reason) {
  return reason.empty() ? "" : ": " + Printable(reason);
}

double SilentSeconds(const v1::Job& job, const TopModel& model) {
  const auto history = model.histories.find(job.id());
  if (history == model.histories.end() || history->second.step < 0) return 0;
  return static_cast<double>(model.now_unix_ms - history->second.step_since_unix_ms) / 1000;
}

// Who is behind the others, in words; empty where nobody is, or it is not known.
std::string Laggard(const v1::Job& job) {
  std::int64_t newest = 0;
  for (const auto& progress : job.progress()) newest = std::max(newest, progress.step());
  for (const auto& progress : job.progress()) {
    if (progress.step() >= newest) continue;
    for (const auto& rank : job.ranks())
      if (rank.rank() == progress.rank())
        return "; rank " + std::to_string(rank.rank()) + " on " + Printable(rank.node()) +
               " is at step " + std::to_string(progress.step()) + ", in " +
               Printable(progress.phase());
  }
  return "";
}

using Kind = TopProblem::Kind;

void JobProblems(const v1::Job& job, const TopModel& model, std::vector<TopProblem>* out) {
  const std::string describe = "muster describe " + job.id();
  const auto add = [&](Kind kind, const std::string& text) {
    out->push_back({kind, NameOf(job) + " " + text, describe});
  };
  switch (job.state()) {
    case v1::JOB_STATE_FAILED:
      if (model.now_unix_ms - job.ended_unix_ms() < kNewsMillis)
        add(Kind::kFailed, "failed" + Because(job.reason()));
      break;
    case v1::JOB_STATE_RECOVERING:
      add(Kind::kRecovering, "is recovering" + Because(job.reason()));
      break;
    case v1::JOB_STATE_QUEUED:
      if (!job.reason().empty()) add(Kind::kWaiting, "waits" + Because(job.reason()));
      break;
    case v1::JOB_STATE_RUNNING: {
      if (std::isnan(job.loss()))
        add(Kind::kNotFinite,
            "has a loss that is not a number, at step " + std::to_string(job.step()));
      const auto history = model.histories.find(job.id());
      const double usual =
          history == model.histories.end() ? 0 : history->second.step_seconds.Median();
      const double silent = SilentSeconds(job, model);
      if (job.step() > 0 && silent > std::max(kSilentSeconds, kSilentSteps * usual)) {
        const bool seen = model.open && model.open->id() == job.id();
        add(Kind::kNoProgress, "has not finished a step for " + HumanSeconds(silent) +
                                   (seen ? Laggard(*model.open) : ""));
      }
      break;
    }
    default: break;
  }
}

void NodeProblems(const v1::Node& node, std::vector<TopProblem>* out) {
  const std::string name = "node " + Printable(node.name());
  const std::string why = Because(node.reason());
  if (node.state() == v1::NODE_STATE_LOST || node.state() == v1::NODE_STATE_SUSPECT)
    out->push_back(
        {Kind::kNodeLost, name + " is " + StateWord(node.state()) + why, "muster nodes -o wide"});
  if (node.state() == v1::NODE_STATE_QUARANTINED)
    out->push_back({Kind::kNodeLost, name + " is quarantined" + why,
                    "muster undrain " + ShellWord(node.name())});
  if (node.notices_size() > 0)
    out->push_back({Kind::kNodeNotice, name + Because(node.notices(0)), "muster nodes"});
}

}  // namespace

void TopModel::SetJobs(v1::ListJobsResponse answer, std::int64_t now) {
  now_unix_ms = now;
  std::set<std::string> listed;
  for (const v1::Job& job : answer.jobs()) {
    listed.insert(job.id());
    if (!IsTerminal(job.state())) NoteStep(job, now, &histories[job.id()]);
  }
  std::erase_if(histories, [&](const auto& entry) { return listed.count(entry.first) == 0; });
  jobs = std::move(answer);
}

void TopModel::SetOpen(v1::Job answer, std::int64_t now) {
  now_unix_ms = now;
  JobHistory& history = histories[answer.id()];
  NoteStep(answer, now, &history);
  std::uint64_t bytes = 0;
  for (const auto& progress : answer.progress()) bytes += progress.rss_bytes();
  if (const v1::RankProgress* first = First(answer); first && first->step() > 0) {
    history.step_seconds.Add(first->step(), first->step_seconds());
    if (bytes > 0) history.memory.Add(first->step(), static_cast<double>(bytes));
  }
  open = std::move(answer);
}

void AddMetricsFile(std::string_view text, JobHistory* history) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return;
    const auto json = nlohmann::json::parse(text.substr(0, end), nullptr, /*exceptions=*/false);
    text.remove_prefix(end + 1);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) continue;
    const auto step = json["step"].get<std::int64_t>();
    const auto number = [&](const char* key) {
      return json.contains(key) && json[key].is_number() ? json[key].get<double>() : std::nan("");
    };
    history->loss.Add(step, number("loss"));
    history->step_seconds.Add(step, number("step_seconds"));
  }
}

std::vector<TopProblem> FindProblems(const TopModel& model) {
  std::vector<TopProblem> problems;
  if (!model.lost.empty())
    problems.push_back(
        {Kind::kNoAnswer,
         "no answer for " +
             HumanSeconds(static_cast<double>(model.now_unix_ms - model.lost_since_unix_ms) /
                          1000) +
             ": " + Printable(model.lost) + "; what is shown is from before",
         "muster up"});
  for (const v1::Job& job : model.jobs.jobs()) JobProblems(job, model, &problems);
  for (const v1::Node& node : model.nodes.nodes()) NodeProblems(node, &problems);
  std::stable_sort(problems.begin(), problems.end(),
                   [](const TopProblem& a, const TopProblem& b) { return a.kind < b.kind; });
  return problems;
}

}  // namespace muster
