#include "cli/jobs/timeline.h"

#include <algorithm>

#include "cli/base/exit_code.h"
#include "cli/base/output.h"
#include "cli/jobs/goodput.h"
#include "cli/jobs/job_json.h"
#include "common/job_spec/job_times.h"
#include "common/job_spec/parse.h"
#include "common/job_spec/queue_names.h"

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

std::string Container(const v1::Job& job) {
  const auto spec = ParseJobSpec(job.spec_yaml());
  return spec.ok() ? ContainerText(spec->container) : "";
}

// What is not as it is without words of the user.
std::string Scheduling(const v1::Job& job) {
  std::string out;
  const std::string queue = QueueName(job.queue());
  const std::string priority_class = ClassName(job.priority_class());
  if (queue != kDefaultQueue) out += ", queue " + queue;
  if (priority_class != kNormalClass) out += ", class " + priority_class;
  if (job.time_limit_seconds() > 0) out += ", time limit " + SpanText(job.time_limit_seconds());
  return out;
}

std::string Header(const v1::Job& job, std::int64_t now_unix_ms) {
  std::string out = "Job " + job.id() + "  " + job.name() + "  " + StateWord(job.state()) + "\n";
  if (!job.reason().empty()) out += "  " + Printable(job.reason()) + "\n";
  out += "  submitted  " + LocalTime(job.submitted_unix_ms()) + ", priority " +
         std::to_string(job.priority()) + Scheduling(job) + "\n";
  if (job.started_unix_ms() != 0)
    out += "  " + std::string(job.ended_unix_ms() ? "ran        " : "running    ") +
           HumanSeconds(RunSeconds(job, now_unix_ms)) + ", " + std::to_string(job.restarts()) +
           (job.restarts() == 1 ? " restart" : " restarts") + "\n";
  const std::string goodput = GoodputSummary(job.goodput());
  if (!goodput.empty()) out += "  goodput    " + goodput + "\n";
  if (const std::string in = Container(job); !in.empty()) out += "  container  " + in + "\n";
  return out;
}

std::string Progress(const v1::Job& job) {
  if (job.step() == 0 && !HasLoss(job)) return "";
  std::string out = "\nProgress\n  step " + std::to_string(job.step());
  if (job.max_steps() > 0) out += " of " + std::to_string(job.max_steps());
  if (HasLoss(job)) {
    out += ", loss ";
    if (job.loss_at_start() != 0) out += LossText(job.loss_at_start(), 3) + " -> ";
    out += LossText(job.loss(), 3);
  }
  if (job.tokens_per_second() > 0) out += ", " + Fixed(job.tokens_per_second(), 0) + " tokens/s";
  if (!IsTerminal(job.state()) && job.eta_seconds() >= 0)
    out += ", " + HumanSeconds(job.eta_seconds()) + " remaining";
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
        out += ", " + PhaseWord(progress.phase()) + " at step " + std::to_string(progress.step());
    out += "\n";
  }
  return out;
}

bool IsCommandJob(const v1::Job& job) {
  const auto spec = ParseJobSpec(job.spec_yaml());
  return spec.ok() && !spec->train;
}

std::string Where(const v1::AttemptInfo& attempt) {
  if (attempt.nodes().empty() || attempt.world_size() == 0) return "";
  constexpr int kNamedNodes = 4;
  std::string out = "  " + std::to_string(attempt.world_size()) +
                    (attempt.world_size() == 1 ? " rank on " : " ranks on ");
  for (int i = 0; i < std::min(attempt.nodes_size(), kNamedNodes); ++i)
    out += (i == 0 ? "" : ", ") + attempt.nodes(i);
  if (attempt.nodes_size() > kNamedNodes)
    out += " and " + std::to_string(attempt.nodes_size() - kNamedNodes) + " more";
  return out;
}

std::string Beginning(const v1::AttemptInfo& attempt, bool first, const v1::Job& job) {
  if (IsCommandJob(job)) return first ? "Ran the command." : "Ran the command again.";
  if (attempt.resumed_step() > 0)
    return "Resumed from the " +
           (attempt.resumed_from() == "snapshot" ? std::string("snapshot") : "checkpoint") +
           " of step " + std::to_string(attempt.resumed_step()) + ".";
  if (attempt.resumed_step() == 0)
    return first ? "Started at step 0."
                 : "Restarted at step 0, because there was no usable snapshot or checkpoint.";
  return attempt.ended_unix_ms() == 0 ? "Has not reached training yet." : "Did not reach training.";
}

// ", after finished step 87 in phase backward, micro-batch 3; last collective world: ...".
std::string Place(const v1::CauseCard& card) {
  if (card.phase().empty()) return "";
  std::string out = ", after finished step " + std::to_string(card.step()) + " in phase " +
                    Printable(card.phase()) + ", micro-batch " + std::to_string(card.micro_batch());
  if (!card.last_collective().empty())
    out += "; last collective " + Printable(card.last_collective());
  return out;
}

void AddSentence(std::string& paragraph, const std::string& sentence) {
  if (sentence.empty()) return;
  paragraph += (paragraph.empty() ? "" : " ") + sentence;
  if (paragraph.back() != '.') paragraph += ".";
}

std::string Facts(const v1::CauseCard& card) {
  std::string out;
  for (const auto& fact : card.facts()) out += (out.empty() ? "Known: " : "; ") + Printable(fact);
  return out;
}

std::string Cause(const v1::AttemptInfo& attempt) {
  std::string out = "Ended";
  if (attempt.last_step() > 0) out += " after step " + std::to_string(attempt.last_step());
  if (attempt.cause().empty()) return out + " with success";
  out += ": " + Printable(attempt.cause());
  while (out.back() == '.') out.pop_back();
  const std::string where = "rank " + std::to_string(attempt.failed_rank());
  // proto3 cannot distinguish rank 0 from "not set"; the node's name can.
  const bool has_rank = attempt.failed_rank() >= 0 && !attempt.failed_node().empty();
  if (has_rank && attempt.cause().find(where) == std::string::npos) out += " (" + where + ")";
  if (has_rank && attempt.cause().find(attempt.failed_node()) == std::string::npos)
    out += " (on " + attempt.failed_node() + ")";
  const std::string& what = attempt.card().what();
  if (!what.empty() && attempt.cause().find(what) == std::string::npos)
    out += " (" + Printable(what) + ")";
  return out + Place(attempt.card());
}

// How the next attempt was started.
std::string TierText(const v1::AttemptInfo& next) {
  const std::pair<std::string_view, const char*> words[] = {
      {"in_place", "The surviving ranks kept their processes, and the gang re-formed in place"},
      {"respawn", "Every rank was restarted on the same nodes"},
      {"spare", "A spare node replaced the lost one"},
      {"shrink", "The job continued with fewer ranks"},
      {"grow", "The job continued with more ranks"},
      {"requeue", "The job waited in the queue for enough nodes"}};
  for (const auto& [tier, text] : words)
    if (tier == next.tier()) return text;
  return "Every rank was stopped, and the gang re-formed";
}

std::string StepsAgain(const v1::AttemptInfo& attempt, const v1::AttemptInfo& next) {
  if (next.resumed_step() < 0) return "";
  const std::string from =
      next.resumed_step() == 0
          ? "It restarted at step 0"
          : "It resumed from the " +
                (next.resumed_from() == "snapshot" ? std::string("snapshot") : "checkpoint") +
                " of step " + std::to_string(next.resumed_step());
  if (attempt.lost_steps() == 0) return from + ", and no finished step was repeated";
  return from + ", and " + Steps(attempt.lost_steps()) +
         (attempt.lost_steps() == 1 ? " was repeated" : " were repeated");
}

// `next`: the attempt after this one; null where there is none.
std::string Ending(const v1::AttemptInfo& attempt, const v1::AttemptInfo* next,
                   const v1::Job& job) {
  if (attempt.ended_unix_ms() == 0)
    return "Still " + (attempt.state().empty() ? "going" : attempt.state()) + ".";
  std::string out;
  AddSentence(out, Cause(attempt));
  AddSentence(out, Facts(attempt.card()));
  if (!attempt.cause().empty()) AddSentence(out, Printable(attempt.card().advice()));
  if (next == nullptr) {
    if (!attempt.cause().empty() && job.state() == v1::JOB_STATE_FAILED)
      AddSentence(out, "It was not retried");
    return out;
  }
  std::string recovery = TierText(*next);
  if (const std::string stages = FormatStages(next->seconds());
      next->has_seconds() && !stages.empty())
    recovery += ", " + stages;
  AddSentence(out, recovery);
  if (!IsCommandJob(job)) AddSentence(out, StepsAgain(attempt, *next));
  return out;
}

std::string Attempt(const v1::AttemptInfo& attempt, const v1::AttemptInfo* next, bool first,
                    const v1::Job& job) {
  std::string out = "  Attempt " + std::to_string(attempt.generation()) + "  " +
                    LocalClock(attempt.started_unix_ms()) + " to " +
                    (attempt.ended_unix_ms() ? LocalClock(attempt.ended_unix_ms()) : "now") +
                    Where(attempt) + "\n";
  out += "    " + Beginning(attempt, first, job) + "\n";
  for (const auto& node : attempt.lent())
    out += "    Node " + node +
           " is a spare of other jobs, and lent: needed by one, it is given back at once.\n";
  for (const auto& note : attempt.notes()) out += "    Note: " + Printable(note) + "\n";
  out += "    " + Ending(attempt, next, job) + "\n";
  const bool failed = !attempt.cause().empty() && attempt.log_tail_size() > 0;
  if (!failed) return out;
  out += "    Last lines of its log:\n";
  const int from = std::max(0, attempt.log_tail_size() - kMaxLogLines);
  for (int i = from; i < attempt.log_tail_size(); ++i)
    out += "      | " + Printable(attempt.log_tail(i)) + "\n";
  return out;
}

std::string Checkpoints(const v1::Job& job) {
  if (job.checkpoints().empty()) return "";
  std::string out = "\nCheckpoints\n";
  for (const auto& checkpoint : job.checkpoints())
    out += "  step " + std::to_string(checkpoint.step()) + "  " + checkpoint.directory() +
           "  committed " + LocalClock(checkpoint.committed_unix_ms()) +
           (checkpoint.has_eval_loss() ? "  evaluation loss " + LossText(checkpoint.eval_loss(), 4)
                                       : std::string()) +
           (checkpoint.refused().empty() ? "" : "  " + Printable(checkpoint.refused())) + "\n";
  return out;
}

std::string Places(const v1::Job& job) {
  if (job.output_dir().empty()) return "";
  const std::string& dir = job.output_dir();
  std::string out = "\nFiles\n  output   " + dir + "\n  logs     " + dir + "/logs/" +
                    std::to_string(std::max<std::int64_t>(job.generation(), 1)) + "/rank-N.log\n";
  const bool train = job.max_steps() > 0 || !job.checkpoints().empty() || HasLoss(job);
  if (train) out += "  metrics  " + dir + "/metrics.jsonl\n";
  if (train && job.state() == v1::JOB_STATE_SUCCEEDED) {
    const Result<JobSpec> spec = ParseJobSpec(job.spec_yaml());
    const bool adapts = spec.ok() && spec->train && spec->train->lora;
    out += adapts ? "  adapter  " + dir + "/adapter\n" : "  model    " + dir + "/model\n";
  }
  return out;
}

std::string Next(const v1::Job& job, const std::string& cluster) {
  const std::string tail = " " + job.id() + " " + cluster + "\n";
  std::string out = "\nNext\n";
  if (!IsTerminal(job.state())) out += "  muster attach" + tail;
  out += "  muster logs" + tail;
  if (!IsTerminal(job.state())) out += "  muster cancel" + tail;
  if (IsTerminal(job.state())) out += "  muster events" + tail;
  return out;
}

}  // namespace

std::string ContainerText(const ContainerSpec& container) {
  std::string text = Printable(container.image);
  for (const ContainerMount& mount : container.mounts)
    text += (&mount == container.mounts.data() ? ", with " : ", ") + Printable(mount.source) +
            (mount.target == mount.source ? "" : " at " + Printable(mount.target)) +
            (mount.read_only ? " (read-only)" : "");
  return text;
}

std::string FormatStages(const v1::StageSeconds& seconds) {
  const std::pair<double, const char*> stages[] = {{seconds.detect(), "detected in "},
                                                   {seconds.abort(), "ranks stopped in "},
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

std::string FormatTimeline(const v1::Job& job, const std::string& cluster,
                           std::int64_t now_unix_ms) {
  std::string out = Header(job, now_unix_ms) + Progress(job) + Placement(job);
  if (!job.attempts().empty()) out += "\nHistory\n";
  for (int i = 0; i < job.attempts_size(); ++i) {
    const v1::AttemptInfo* next = i + 1 < job.attempts_size() ? &job.attempts(i + 1) : nullptr;
    out += Attempt(job.attempts(i), next, i == 0, job);
  }
  return out + Checkpoints(job) + Places(job) + Next(job, cluster);
}

}  // namespace muster
