#include "common/problems/problems.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace muster {
namespace {

// A job that has finished no step for so many of its usual steps, and at least for so long, is
// reported. The coordinator decides by itself what to do about it, and sooner.
constexpr double kSilentSteps = 10;
constexpr double kSilentSeconds = 15;
// Weights are read and rows tokenized before the first step.
constexpr double kStartSeconds = 5 * 60;
// How long an end is news.
constexpr double kNewsSeconds = 10 * 60;

std::string Because(std::string_view reason) {
  return reason.empty() ? "" : ": " + std::string(reason);
}

std::string For(double seconds) { return seconds < 0 ? "" : " for " + LastingText(seconds); }

// In these no step ends, however long they last, and nothing is wrong.
bool IsApartFromSteps(std::string_view phase) {
  return phase == "evaluating" || phase == "exporting" || phase == "done";
}

std::string Hundredths(double value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed, 2);
  return std::string(text, end.ptr);
}

// The first one that is behind the others, in words.
std::string Laggard(const std::vector<RankFacts>& ranks) {
  std::int64_t newest = 0;
  for (const RankFacts& rank : ranks) newest = std::max(newest, rank.step);
  for (const RankFacts& rank : ranks)
    if (rank.step < newest)
      return "; rank " + std::to_string(rank.rank) + " on " + std::string(rank.node) +
             " is at step " + std::to_string(rank.step) + ", in " + rank.phase;
  return "";
}

class JobReport {
 public:
  JobReport(const JobFacts& job, std::vector<Problem>* out) : job_(job), out_(out) {}

  void Add(ProblemKind kind, const std::string& text) const {
    const std::string_view name = job_.name.empty() ? job_.id : job_.name;
    out_->push_back({kind, "job " + std::string(name) + text,
                     "muster describe " + std::string(job_.id), std::string(job_.id)});
  }

 private:
  const JobFacts& job_;
  std::vector<Problem>* out_;
};

bool IsSilent(const JobFacts& job) {
  if (job.step == 0) return false;
  if (job.silent_seconds <= std::max(kSilentSeconds, kSilentSteps * job.step_seconds)) return false;
  return std::none_of(job.ranks.begin(), job.ranks.end(),
                      [](const RankFacts& rank) { return IsApartFromSteps(rank.phase); });
}

void FindInRunning(const JobFacts& job, const JobReport& report) {
  if (!std::isfinite(job.loss))
    report.Add(ProblemKind::kNotFinite,
               " has a loss that is not finite, at step " + std::to_string(job.step));
  else if (IsSilent(job))
    report.Add(ProblemKind::kNoProgress,
               " has not finished a step" + For(job.silent_seconds) + Laggard(job.ranks));
  else if (job.slow)
    report.Add(ProblemKind::kStraggler,
               " waits for rank " + std::to_string(job.slow->rank) + " on " +
                   std::string(job.slow->node) + ", whose work takes " +
                   Hundredths(job.slow->seconds / job.slow->others_seconds) +
                   " times that of the others");
  if (!job.reason.empty()) report.Add(ProblemKind::kUnsaved, Because(job.reason));
}

void JoinWaiting(std::vector<Problem>* problems) {
  const auto first = std::find_if(problems->begin(), problems->end(), [](const Problem& problem) {
    return problem.kind == ProblemKind::kWaiting;
  });
  const auto more = problems->end() - first - 1;
  if (more <= 0) return;
  first->text += "; " + std::to_string(more) + (more == 1 ? " more waits" : " more wait");
  problems->erase(first + 1, problems->end());
}

}  // namespace

ProblemSeverity SeverityOf(ProblemKind kind) {
  switch (kind) {
    case ProblemKind::kNoAnswer:
    case ProblemKind::kNotFinite:
    case ProblemKind::kNoProgress:
    case ProblemKind::kUnsaved:
    case ProblemKind::kNotStarting:
    case ProblemKind::kNodeLost:
    case ProblemKind::kFailed: return ProblemSeverity::kError;
    case ProblemKind::kRecovering:
    case ProblemKind::kDamagedCheckpoint:
    case ProblemKind::kStraggler:
    case ProblemKind::kNodeNotice: return ProblemSeverity::kWarning;
    case ProblemKind::kWaiting: break;
  }
  return ProblemSeverity::kInfo;
}

std::string_view Name(ProblemSeverity severity) {
  switch (severity) {
    case ProblemSeverity::kError: return "error";
    case ProblemSeverity::kWarning: return "warning";
    case ProblemSeverity::kInfo: break;
  }
  return "info";
}

void FindJobProblems(const JobFacts& job, std::vector<Problem>* out) {
  const JobReport report(job, out);
  switch (job.state) {
    case JobFacts::State::kFailed:
      if (job.state_seconds < kNewsSeconds)
        report.Add(
            ProblemKind::kFailed,
            " failed" +
                (job.state_seconds < 0 ? "" : " " + LastingText(job.state_seconds) + " ago") +
                Because(job.reason));
      return;
    case JobFacts::State::kWaiting:
      if (!job.reason.empty()) report.Add(ProblemKind::kWaiting, " waits" + Because(job.reason));
      break;
    case JobFacts::State::kStarting:
      if (job.state_seconds >= kStartSeconds)
        report.Add(ProblemKind::kNotStarting, " has its slots" + For(job.state_seconds) +
                                                  " and no first step yet" + Because(job.reason));
      break;
    case JobFacts::State::kRecovering:
      report.Add(ProblemKind::kRecovering,
                 " is recovering" + For(job.state_seconds) + Because(job.reason));
      break;
    case JobFacts::State::kRunning: FindInRunning(job, report); break;
    case JobFacts::State::kOther: return;
  }
  if (job.damaged_checkpoints > 0)
    report.Add(ProblemKind::kDamagedCheckpoint, " cannot resume from " +
                                                    std::to_string(job.damaged_checkpoints) +
                                                    " of its checkpoints" + Because(job.damage));
}

void FindNodeProblems(const NodeFacts& node, std::vector<Problem>* out) {
  const std::string name = "node " + std::string(node.name);
  switch (node.state) {
    case NodeFacts::State::kGone:
      out->push_back({ProblemKind::kNodeLost,
                      name + " is " + std::string(node.state_word) + Because(node.reason),
                      "muster nodes -o wide",
                      {}});
      break;
    case NodeFacts::State::kQuarantined:
      out->push_back({ProblemKind::kNodeLost,
                      name + " is quarantined" + Because(node.reason),
                      "muster undrain " + std::string(node.shell_name),
                      {}});
      break;
    case NodeFacts::State::kOther: break;
  }
  if (!node.notice.empty())
    out->push_back({ProblemKind::kNodeNotice, name + Because(node.notice), "muster nodes", {}});
}

void SortProblems(std::vector<Problem>* problems) {
  std::stable_sort(problems->begin(), problems->end(),
                   [](const Problem& a, const Problem& b) { return a.kind < b.kind; });
  JoinWaiting(problems);
}

std::string LastingText(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, 1e12));
  const auto text = [](std::int64_t value, const char* unit) {
    return std::to_string(value) + " " + unit;
  };
  if (whole < 60) return text(whole, "s");
  if (whole < 3600) return text(whole / 60, "min") + " " + text(whole % 60, "s");
  return text(whole / 3600, "h") + " " + text(whole % 3600 / 60, "min");
}

}  // namespace muster
