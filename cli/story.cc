#include "cli/story.h"

#include <algorithm>

#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "cli/output.h"
#include "common/job_spec/parse.h"

namespace muster {
namespace {

constexpr int kMaxLogLines = 12;

std::string Steps(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " finished step" : " finished steps");
}

double RunSeconds(const v1::Job& job, std::int64_t now_unix_ms) {
  if (job.started_unix_ms() == 0) return -1;
  const std::int64_t end = job.ended_unix_ms() ? job.ended_unix_ms() : now_unix_ms;
  return static_cast<double>(end - job.started_unix_ms()) / 1000;
}

std::string Header(const v1::Job& job, std::int64_t now_unix_ms) {
  std::string out = "Job " + job.id() + "  " + job.name() + "  " + StateWord(job.state()) + "\n";
  if (!job.reason().empty()) out += "  " + Printable(job.reason()) + "\n";
  out += "  submitted  " + LocalTime(job.submitted_unix_ms()) + ", priority " +
         std::to_string(job.priority()) + "\n";
  if (job.started_unix_ms() != 0)
    out += "  " + std::string(job.ended_unix_ms() ? "ran        " : "running    ") +
           HumanSeconds(RunSeconds(job, now_unix_ms)) + ", " + std::to_string(job.restarts()) +
           (job.restarts() == 1 ? " restart" : " restarts") + "\n";
  return out;
}

std::string Progress(const v1::Job& job) {
  if (job.step() == 0 && !HasLoss(job)) return "";
  std::string out = "\nProgress\n  step " + std::to_string(job.step());
  if (job.max_steps() > 0) out += " of " + std::to_string(job.max_steps());
  if (HasLoss(job)) {
    out += ", loss ";
    if (job.loss_at_start() != 0) out += Fixed(job.loss_at_start(), 3) + " -> ";
    out += Fixed(job.loss(), 3);
  }
  if (job.tokens_per_second() > 0) out += ", " + Fixed(job.tokens_per_second(), 0) + " tokens/s";
  if (!IsTerminal(job.state()) && job.eta_seconds() >= 0)
    out += ", " + HumanSeconds(job.eta_seconds()) + " to go";
  return out + "\n";
}

std::string Placement(const v1::Job& job) {
  if (job.ranks().empty()) return "";
  std::string out = "\nPlacement (generation " + std::to_string(job.generation()) + ")\n";
  for (const auto& rank : job.ranks()) {
    out += "  rank " + std::to_string(rank.rank()) + "  " + rank.node() + "  pid " +
           (rank.pid() > 0 ? std::to_string(rank.pid()) : "-") + "  " + RankWord(rank);
    for (const auto& progress : job.progress())
      if (progress.rank() == rank.rank() && rank.state() == v1::RANK_STATE_RUNNING)
        out += ", " + progress.phase() + " at step " + std::to_string(progress.step());
    out += "\n";
  }
  return out;
}

bool IsCommandJob(const v1::Job& job) {
  const auto spec = ParseJobSpec(job.spec_yaml());
  return spec.ok() && !spec->train;
}

std::string Beginning(const v1::AttemptInfo& attempt, const v1::AttemptInfo* previous,
                      const v1::Job& job) {
  std::string out;
  if (IsCommandJob(job)) {
    out = previous ? "Ran the command again" : "Ran the command";
  } else if (attempt.resumed_step() > 0) {
    out = "Resumed from the checkpoint of step " + std::to_string(attempt.resumed_step());
  } else if (attempt.resumed_step() == 0) {
    out =
        previous ? "Began again at step 0, for there was no usable checkpoint" : "Began at step 0";
  } else if (attempt.ended_unix_ms() == 0) {
    out = "Has not come to training yet";
  } else {
    out = "Did not come to training";
  }
  if (previous && previous->lost_steps() > 0 && attempt.resumed_step() >= 0)
    out += "; " + Steps(previous->lost_steps()) +
           (previous->lost_steps() == 1 ? " was lost and done again" : " were lost and done again");
  return out + ".";
}

std::string Ending(const v1::AttemptInfo& attempt, const v1::Job& job) {
  if (attempt.ended_unix_ms() == 0)
    return "Still " + (attempt.state().empty() ? "going" : attempt.state()) + ".";
  std::string out = "Ended";
  if (attempt.last_step() > 0) out += " after step " + std::to_string(attempt.last_step());
  if (attempt.cause().empty()) return out + " with the job's success.";
  out += ": " + Printable(attempt.cause());
  const std::string where = "rank " + std::to_string(attempt.failed_rank());
  // proto3 cannot tell rank 0 from "not set"; the node's name can.
  const bool has_rank = attempt.failed_rank() >= 0 && !attempt.failed_node().empty();
  if (has_rank && attempt.cause().find(where) == std::string::npos) out += " (" + where + ")";
  if (has_rank && attempt.cause().find(attempt.failed_node()) == std::string::npos)
    out += " (on " + attempt.failed_node() + ")";
  if (out.back() != '.') out += ".";
  const bool last = attempt.generation() == job.generation();
  if (!last)
    out += " Every rank of it was ended and the gang formed again.";
  else if (job.state() == v1::JOB_STATE_FAILED)
    out += " It was not tried again.";
  return out;
}

std::string Attempt(const v1::AttemptInfo& attempt, const v1::AttemptInfo* previous,
                    const v1::Job& job) {
  std::string out = "  Attempt " + std::to_string(attempt.generation()) + "  " +
                    LocalClock(attempt.started_unix_ms()) + " to " +
                    (attempt.ended_unix_ms() ? LocalClock(attempt.ended_unix_ms()) : "now") + "\n";
  out += "    " + Beginning(attempt, previous, job) + "\n";
  if (previous && attempt.has_seconds())
    if (const std::string stages = TellStages(attempt.seconds()); !stages.empty())
      out += "    Recovery: " + stages + ".\n";
  for (const auto& note : attempt.notes()) out += "    Note: " + Printable(note) + "\n";
  out += "    " + Ending(attempt, job) + "\n";
  const bool failed = !attempt.cause().empty() && attempt.log_tail_size() > 0;
  if (!failed) return out;
  out += "    Last lines of its log:\n";
  const int first = std::max(0, attempt.log_tail_size() - kMaxLogLines);
  for (int i = first; i < attempt.log_tail_size(); ++i)
    out += "      | " + Printable(attempt.log_tail(i)) + "\n";
  return out;
}

std::string Checkpoints(const v1::Job& job) {
  if (job.checkpoints().empty()) return "";
  std::string out = "\nCheckpoints\n";
  for (const auto& checkpoint : job.checkpoints())
    out += "  step " + std::to_string(checkpoint.step()) + "  " + checkpoint.directory() +
           "  committed " + LocalClock(checkpoint.committed_unix_ms()) + "\n";
  return out;
}

std::string Places(const v1::Job& job) {
  if (job.output_dir().empty()) return "";
  const std::string& dir = job.output_dir();
  std::string out = "\nFiles\n  output   " + dir + "\n  logs     " + dir + "/logs/" +
                    std::to_string(std::max<std::int64_t>(job.generation(), 1)) + "/rank-N.log\n";
  const bool train = job.max_steps() > 0 || !job.checkpoints().empty() || HasLoss(job);
  if (train) out += "  metrics  " + dir + "/metrics.jsonl\n";
  if (train && job.state() == v1::JOB_STATE_SUCCEEDED) out += "  model    " + dir + "/model\n";
  return out;
}

std::string Next(const v1::Job& job, const std::string& dir) {
  const std::string tail = " " + job.id() + " --dir " + ShellWord(dir) + "\n";
  std::string out = "\nNext\n";
  if (!IsTerminal(job.state())) out += "  muster attach" + tail;
  out += "  muster logs" + tail;
  if (!IsTerminal(job.state())) out += "  muster cancel" + tail;
  if (IsTerminal(job.state())) out += "  muster events" + tail;
  return out;
}

}  // namespace

std::string TellStages(const v1::StageSeconds& seconds) {
  const std::pair<double, const char*> stages[] = {{seconds.detect(), "detected in "},
                                                   {seconds.abort(), "old ranks ended in "},
                                                   {seconds.reform(), "re-formed in "},
                                                   {seconds.load(), "state loaded in "},
                                                   {seconds.first_step(), "first new step in "}};
  double total = 0;
  bool complete = true;
  std::string parts;
  for (const auto& [value, words] : stages) {
    complete = complete && value >= 0;
    if (value < 0) continue;
    total += value;
    parts += (parts.empty() ? "" : ", ") + std::string(words) + PreciseSeconds(value);
  }
  if (parts.empty()) return "";
  if (!complete) return parts;
  return "training again " + PreciseSeconds(total) + " after the fault: " + parts;
}

std::string TellStory(const v1::Job& job, const std::string& dir, std::int64_t now_unix_ms) {
  std::string out = Header(job, now_unix_ms) + Progress(job) + Placement(job);
  if (!job.attempts().empty()) out += "\nStory\n";
  const v1::AttemptInfo* previous = nullptr;
  for (const auto& attempt : job.attempts()) {
    out += Attempt(attempt, previous, job);
    previous = &attempt;
  }
  return out + Checkpoints(job) + Places(job) + Next(job, dir);
}

}  // namespace muster
