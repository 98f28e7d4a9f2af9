#include "coordinator/control/running.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/text.h"
#include "coordinator/control/attempt_end.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/job_end.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

constexpr std::size_t kMaxLogLines = 50;
constexpr std::size_t kMaxWordBytes = 32;
constexpr Duration kStoreExitsEvery = std::chrono::seconds(1);

std::vector<std::string> Bounded(std::vector<std::string> lines) {
  if (lines.size() > kMaxLogLines) lines.erase(lines.begin(), lines.end() - kMaxLogLines);
  for (std::string& line : lines) line = CutText(std::move(line), kMaxNoteBytes);
  return lines;
}

// Per attempt. Each note becomes an event, so a rank that floods them would push out the events of
// other jobs.
constexpr int kMaxTrainerNotes = 1000;

bool IsUp(const AttemptRecord& attempt) {
  return attempt.state == AttemptState::kLaunching || attempt.state == AttemptState::kRunning;
}

std::string FromText(const std::string& resumed_from) {
  if (resumed_from == "snapshot") return " from a snapshot";
  return resumed_from == "checkpoint" ? " from a checkpoint" : "";
}

// All ranks of an attempt are stored as one record, and thousands of them end at once. What is not
// stored yet when the coordinator dies arrives again with the next Hello.
void StoreExitsSoon(Gang& gang, TimePoint now) {
  if (!gang.store_exits_at) gang.store_exits_at = now + kStoreExitsEvery;
}

// How long checkpoints have delayed training between two samples of a rank's page.
double CheckpointSeconds(const RankProgress& before, const RankProgress& now) {
  constexpr auto kIndex = static_cast<std::size_t>(TrainPhase::kCheckpoint);
  if (before.phase_seconds.size() <= kIndex || now.phase_seconds.size() <= kIndex) return 0;
  return now.phase_seconds[kIndex] - before.phase_seconds[kIndex];
}

// One slow step changes nothing.
void ObserveStepSeconds(JobEntry& job, double seconds) {
  constexpr std::size_t kSteps = 15;
  if (job.newest_steps.size() == kSteps) job.newest_steps.erase(job.newest_steps.begin());
  job.newest_steps.push_back(seconds);
  std::vector<double> sorted = job.newest_steps;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  job.step_seconds = *middle;
}

// How long ago the newest of these steps was finished, at most: a message may arrive a second
// later.
Duration LeastQuiet(const std::vector<RankProgress>& ranks) {
  constexpr double kLongest = 3600;
  double least = kLongest;
  for (const RankProgress& rank : ranks) {
    if (std::isfinite(rank.quiet_seconds)) least = std::min(least, rank.quiet_seconds);
  }
  return FromSeconds(ranks.empty() ? 0 : std::max(0.0, least));
}

// What a hang's culprit was doing; one of a closed set.
std::string_view SuspectOf(const std::vector<RankProgress>& ranks, int culprit) {
  const auto rank = std::ranges::find(ranks, culprit, &RankProgress::rank);
  if (rank == ranks.end()) return "unknown";
  if (rank->process_state == "T" || rank->process_state == "t") return "stopped";
  return rank->phase ? TrainPhaseName(*rank->phase) : "unknown";
}

Severity SeverityOf(std::string_view name) {
  if (name == "error") return Severity::kError;
  return name == "warning" ? Severity::kWarning : Severity::kInfo;
}

void RecordRecovered(Transaction& tx, JobEntry& job) {
  const AttemptRecord& attempt = job.attempt();
  std::string text = job.spec.train ? "training again" : "running again";
  RecoveryObserved observed{.seconds = attempt.seconds, .total_seconds = -1, .tier = attempt.tier};
  if (job.fault) {
    observed.total_seconds = ToSeconds(tx.now.mono - job.fault->at);
    text += " " + SecondsText(observed.total_seconds) + " after the fault";
  }
  const StageSeconds& s = attempt.seconds;
  const std::pair<const char*, double> stages[] = {{"detect", s.detect},
                                                   {"abort", s.abort},
                                                   {"reform", s.reform},
                                                   {"load", s.load},
                                                   {"first step", s.first_step}};
  const char* separator = ": ";
  for (const auto& [name, seconds] : stages) {
    if (seconds < 0) continue;
    text += separator + std::string(name) + " " + SecondsText(seconds);
    separator = ", ";
  }
  if (job.spec.train && attempt.resumed_step >= 0) {
    const AttemptRecord* before = NewestTrained(job, 1);
    const std::int64_t lost = before == nullptr ? 0 : before->lost_steps;
    text += "; resumed at step " + std::to_string(attempt.resumed_step) + ", " +
            std::to_string(lost) + (lost == 1 ? " step" : " steps") + " to do again";
  }
  text += "; by " + std::string(Name(attempt.tier));
  tx.out.observations.push_back(observed);
  job.fault.reset();
  tx.RecordEvent(job, {"recovered", Severity::kInfo, std::move(text)});
}

void NowRunning(Transaction& tx, JobEntry& job) {
  tx.state.reschedule = true;  // it may request more nodes
  for (const GangNode& member : job.gang->nodes) {
    if (!member.spare) job.backoff.Accept(member.name);
  }
  // A cancel or its time limit has stopped the job before its gang was up.
  if (job.record.stop != StopKind::kNone) return;
  const bool news = job.record.state != JobState::kRunning;
  tx.Move(job, JobEvent::kRunning);
  job.record.reason.clear();
  if (!news) return;
  ReleaseFormerNodes(tx, job);
  if (job.attempts.size() > 1) return RecordRecovered(tx, job);
  const double seconds = SecondsSinceSubmission(job, tx.now);
  tx.RecordEvent(job, {"running", Severity::kInfo,
                       (job.spec.train ? "first step finished " : "every rank is up ") +
                           SecondsText(seconds) + " after the submission"});
}

void CheckAllStarted(Transaction& tx, JobEntry& job) {
  AttemptRecord& attempt = job.attempt();
  Gang& gang = *job.gang;
  Launching* launching = In<Launching>(gang);
  if (launching == nullptr) return;
  std::size_t& started = launching->started;
  while (started < attempt.ranks.size() && attempt.ranks[started].state != RankState::kPrepared)
    ++started;
  if (started < attempt.ranks.size()) return;
  Running running{.ranks = std::move(launching->ranks)};
  if (job.spec.train && !running.ranks.all_formed && !gang.first_step)
    running.form_deadline = tx.now.mono + tx.options.form_deadline;
  tx.Enter(job, std::move(running));
  if (job.spec.train) return;
  // A command reports nothing: its processes are the only thing to wait for.
  const std::optional<TimePoint> from = job.fault ? std::optional(job.fault->quiesced) : gang.began;
  if (from) attempt.seconds.reform = ToSeconds(tx.now.mono - *from);
  NowRunning(tx, job);
}

void OnFormed(Transaction& tx, JobEntry& job, int rank) {
  Gang& gang = *job.gang;
  RankReports& reports = *ReportsOf(gang);
  reports.formed.insert(rank);
  if (reports.all_formed || static_cast<int>(reports.formed.size()) < WorldSize(job)) return;
  reports.all_formed = tx.now.mono;
  if (reports.tier_deadline)
    reports.tier_left = std::max(Duration::zero(), *reports.tier_deadline - tx.now.mono);
  reports.tier_deadline.reset();
  if (Running* running = In<Running>(gang)) running->form_deadline.reset();
  const std::optional<TimePoint> from = job.fault ? std::optional(job.fault->quiesced) : gang.began;
  if (!from || job.attempt().seconds.reform >= 0) return;  // recorded before a restart
  job.attempt().seconds.reform = ToSeconds(tx.now.mono - *from);
  tx.MarkAttempt(job);
  tx.RecordEvent(job, {"formed", Severity::kInfo,
                       std::to_string(WorldSize(job)) + (WorldSize(job) == 1 ? " rank" : " ranks") +
                           " formed in " + SecondsText(job.attempt().seconds.reform)});
}

void CountLostSteps(Transaction& tx, JobEntry& job, Step resumed_step) {
  AttemptRecord* before = NewestTrained(job, 1);
  if (before == nullptr) return;
  before->lost_steps = std::max<std::int64_t>(0, before->last_step - resumed_step);
  if (before->lost_steps == 0) return;
  tx.out.observations.push_back(LostStepsObserved{before->lost_steps});
  tx.Mark(*before);
}

void ObserveStep(Transaction& tx, JobEntry& job, Step step) {
  AttemptRecord& attempt = job.attempt();
  if (step <= attempt.last_step) return;
  attempt.last_step = step;
  job.record.step = step;
  // The step that it resumed from was finished before.
  if (step > attempt.resumed_step) job.record.progress_unix_ms = tx.now.unix_ms;
  job.checkpoint_clock.StepSeen(step, tx.now.mono);
  tx.Changed(job);
}

void OnResumed(Transaction& tx, JobEntry& job, int rank, const Resumed& resumed) {
  for (const RejectedCheckpoint& rejected : resumed.rejected) {
    RefuseCheckpoint(tx, job, rejected);
  }
  Gang& gang = *job.gang;
  AttemptRecord& attempt = job.attempt();
  if (!IsUp(attempt)) return;
  if (attempt.resumed_step < 0) {
    attempt.resumed_step = resumed.step;
    attempt.resumed_from = CutText(resumed.from, kMaxWordBytes);
    CountLostSteps(tx, job, resumed.step);
    ObserveStep(tx, job, resumed.step);
    job.record.step = attempt.last_step;
    tx.MarkAttempt(job);
    tx.RecordEvent(job, {"resumed", Severity::kInfo,
                         resumed.step == 0 ? "starting at step 0"
                                           : "resumed at step " + std::to_string(resumed.step) +
                                                 FromText(attempt.resumed_from)});
  }
  RankReports& reports = *ReportsOf(gang);
  reports.resumed.insert(rank);
  if (reports.all_resumed || static_cast<int>(reports.resumed.size()) < WorldSize(job)) return;
  reports.all_resumed = tx.now.mono;
  if (reports.tier_left > Duration::zero() && !gang.first_step) {
    reports.tier_deadline = tx.now.mono + reports.tier_left;
  }
  if (!gang.began || !reports.all_formed) return;
  attempt.seconds.load = ToSeconds(tx.now.mono - *reports.all_formed);
  tx.MarkAttempt(job);
}

void OnFirstStep(Transaction& tx, JobEntry& job, const FirstStep& first) {
  Gang& gang = *job.gang;
  ObserveStep(tx, job, first.step);
  if (gang.first_step) return;
  gang.first_step = true;
  RankReports& reports = *ReportsOf(gang);
  reports.tier_deadline.reset();
  const std::optional<TimePoint> from =
      reports.all_resumed ? reports.all_resumed : reports.all_formed;
  if (gang.began && from) job.attempt().seconds.first_step = ToSeconds(tx.now.mono - *from);
  if (Running* running = In<Running>(gang)) running->form_deadline.reset();
  tx.MarkAttempt(job);
  NowRunning(tx, job);
}

void OnFinished(Transaction& tx, JobEntry& job, const Finished& finished) {
  job.gang->finished = true;
  ObserveStep(tx, job, finished.step);
  std::string text = "trained to step " + std::to_string(finished.step);
  if (!finished.model_dir.empty()) text += "; the model is in " + finished.model_dir;
  if (tx.Note(job, text)) tx.RecordEvent(job, {"finished", Severity::kInfo, text});
}

// The detectors read the ranks' pages; a hang ends the gang, a straggler only causes events.
void Watch(Transaction& tx, JobEntry& job, const Progress& message) {
  if (!job.spec.train || !IsUp(job.attempt())) return;
  const StragglerNews news = job.detectors->stragglers.Observe(message.ranks);
  for (const Straggler& straggler : news.named) {
    const std::string text = NamedText(straggler);
    tx.out.observations.push_back(StragglerObserved{});
    tx.Note(job, text);
    tx.RecordEvent(job, {"straggler", Severity::kWarning, text});
  }
  for (const Straggler& straggler : news.cleared)
    tx.RecordEvent(job, {"straggler_cleared", Severity::kInfo, ClearedText(straggler)});
  const std::optional<HangVerdict> hang = job.detectors->hangs.Observe(message.ranks, tx.now.mono);
  if (!hang) return;
  tx.out.observations.push_back(HangObserved{SuspectOf(job.progress, hang->ranks.front())});
  job.ledger.ObserveHang(hang->quiet_seconds);
  const int rank = hang->ranks.front();
  Failure failure{.kind = CauseKind::kHung,
                  .rank = rank,
                  .node = job.attempt().ranks[static_cast<std::size_t>(rank)].node,
                  .message = CutText(hang->reason, kMaxNoteBytes),
                  .at = tx.now.mono,
                  .hang = hang,
                  .facts = Bounded(hang->facts)};
  for (const RankProgress& progress : job.progress) {
    if (progress.rank == rank) failure.last = progress;
  }
  tx.RecordEvent(job, {"hung", Severity::kError, failure.message});
  job.gang->kill_ranks.insert(hang->ranks.begin(), hang->ranks.end());
  Fail(tx, job, std::move(failure));
}

}  // namespace

void Handle(Transaction& tx, const NodeName& node, const RankStarted& message) {
  JobEntry* job = tx.FenceRank(node, message.job, message.generation, message.rank);
  if (job == nullptr) return;
  RankRecord& rank = job->attempt().ranks[message.rank];
  const std::optional<RankState> next = Apply(rank.state, RankEvent::kStarted);
  if (!next) return;  // its exit overtook this
  rank.state = *next;
  rank.pid = message.pid;
  const bool aborting = job->attempt().state == AttemptState::kAborting;
  if (aborting) MoveRank(*job, rank, RankEvent::kStop);
  tx.Changed(*job);
  CheckAllStarted(tx, *job);
}

void Handle(Transaction& tx, const NodeName& node, const RankExited& message) {
  JobEntry* job = tx.FenceRank(node, message.job, message.generation, message.rank);
  if (job == nullptr) return;
  AttemptRecord& attempt = job->attempt();
  RankRecord& rank = attempt.ranks[message.rank];
  if (rank.state == RankState::kExited) return;
  MoveRank(*job, rank, RankEvent::kExited);
  rank.end = message.end;
  Gang& gang = *job->gang;
  StoreExitsSoon(gang, tx.now.mono);
  tx.Changed(*job);
  if (job->detectors) job->detectors->hangs.RankEnded(message.rank);
  const TimePoint at = tx.now.mono - FromSeconds(std::max(0.0, message.age_seconds));
  // It may have continued while there was no coordinator.
  if (message.last) job->ledger.ObserveStep(message.last->step, job->record.best_step, at);
  if (ExitedByStop(tx, *job, message.end.exit)) return;
  if (message.end.exit.ok()) {
    CheckAllStarted(tx, *job);
    if (!IsUp(attempt) || !AllExitedWell(attempt)) return;
    // A Stop that an earlier coordinator sent caused it, for a drain that is over by now.
    if (!NoneAskedToStop(attempt)) {
      return GangStopped(tx, *job, "it stopped at a step boundary, as requested");
    }
    attempt.cause_kind = CauseKind::kFinished;
    attempt.cause = "every rank has finished";
    return BeginAbort(tx, *job, {attempt.cause, kCancelGrace});
  }
  if (job->record.stop != StopKind::kNone) return;
  const auto error = gang.errors.find(message.rank);
  const RankFailure ended{message.rank,
                          node,
                          job->spec.train.has_value(),
                          message.end.exit,
                          error == gang.errors.end() ? std::nullopt : std::optional(error->second),
                          message.end.node_stopped,
                          message.end.ended,
                          message.end.out_of_memory};
  const bool aborting = In<Aborting>(gang) != nullptr;
  if (aborting && IsConsequenceOfAbort(ended)) return;
  Failure failure = Classify(ended);
  failure.at = at;
  failure.log_tail = Bounded(message.log_tail);
  failure.facts = Bounded(message.facts);
  failure.last = message.last;
  // Once the gang is being ended, more symptoms are not recorded.
  if (!aborting || !failure.symptom()) {
    tx.RecordEvent(*job, {"rank_exited", failure.symptom() ? Severity::kWarning : Severity::kError,
                          failure.message});
  }
  Fail(tx, *job, std::move(failure));
}

void Handle(Transaction& tx, const NodeName& node, const TrainerReport& message) {
  JobEntry* job = tx.FenceRank(node, message.job, message.generation, message.rank);
  if (job == nullptr) return;
  const int rank = message.rank;
  const bool up = ReportsOf(*job->gang) != nullptr;
  if (std::holds_alternative<Formed>(message.body)) {
    if (up) OnFormed(tx, *job, rank);
  } else if (const auto* resumed = std::get_if<Resumed>(&message.body)) {
    OnResumed(tx, *job, rank, *resumed);
  } else if (const auto* first = std::get_if<FirstStep>(&message.body)) {
    if (up) OnFirstStep(tx, *job, *first);
  } else if (const auto* written = std::get_if<ShardWritten>(&message.body)) {
    OnShardWritten(tx, *job, rank, *written);
  } else if (const auto* failed = std::get_if<CheckpointFailed>(&message.body)) {
    OnCheckpointFailed(tx, *job, rank, *failed);
  } else if (const auto* error = std::get_if<TrainerError>(&message.body)) {
    OnTrainerError(tx, *job, rank, *error);
  } else if (const auto* note = std::get_if<TrainerNote>(&message.body)) {
    if (job->gang->trainer_notes >= kMaxTrainerNotes) return;
    const std::string text = "rank " + std::to_string(rank) + ": " + note->message;
    if (!tx.Note(*job, text)) return;
    ++job->gang->trainer_notes;
    tx.RecordEvent(*job, {"note", SeverityOf(note->severity), text});
  } else if (const auto* finished = std::get_if<Finished>(&message.body)) {
    OnFinished(tx, *job, *finished);
  } else if (std::holds_alternative<Parked>(message.body)) {
    if (up) OnSymptom(tx, *job, rank, {"peer_lost", "it parked"});
  }
}

void Handle(Transaction& tx, const NodeName& node, const Progress& message) {
  JobEntry* job = tx.Fence(node, message.job, message.generation, nullptr);
  if (job == nullptr) return;
  for (const RankProgress& progress : message.ranks) {
    if (progress.rank < 0 || progress.rank >= WorldSize(*job)) continue;
    if (job->attempt().ranks[progress.rank].node != node) continue;
    const auto place =
        std::lower_bound(job->progress.begin(), job->progress.end(), progress.rank,
                         [](const RankProgress& known, int rank) { return known.rank < rank; });
    const bool known = place != job->progress.end() && place->rank == progress.rank;
    const bool new_step = progress.step > job->attempt().last_step;
    if (known) {
      job->ledger.ObserveCheckpoint(CheckpointSeconds(*place, progress));
      *place = progress;
    } else {
      job->progress.insert(place, progress);
    }
    JobRecord& record = job->record;
    if (progress.max_steps > 0) record.max_steps = progress.max_steps;
    if (progress.step == 0 || progress.step < job->attempt().last_step) continue;
    if (new_step) ObserveStep(tx, *job, progress.step);
    // A process that only resumes from this step has no figures of it. Those of an attempt's first
    // step arrive after the rank's report that it is finished.
    if (progress.step_seconds <= 0) continue;
    record.loss = progress.loss;
    record.tokens = progress.tokens;
    if (record.loss_at_start == 0) record.loss_at_start = progress.loss;
    if (!new_step) continue;
    job->slowest_step =
        std::max({job->slowest_step, progress.step_seconds, progress.slowest_step_seconds});
    ObserveStepSeconds(*job, progress.step_seconds);
  }
  job->ledger.ObserveStep(job->attempt().last_step, job->record.best_step,
                          tx.now.mono - LeastQuiet(message.ranks));
  Watch(tx, *job, message);
  tx.Changed(*job);
}

}  // namespace muster::control
