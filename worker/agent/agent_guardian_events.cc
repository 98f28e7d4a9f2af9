// The upper half of Agent: what became of ranks. It mirrors guardians' reports, and takes what is
// found without a guardian for such reports.

#include <signal.h>

#include <algorithm>
#include <utility>

#include "worker/agent/agent.h"
#include "worker/agent/trainer_report.h"

namespace muster::worker {
namespace {

constexpr int kExitNotLaunched = 127;

template <typename Entry>
bool HasRank(const std::vector<Entry>& entries, int rank) {
  return std::any_of(entries.begin(), entries.end(),
                     [rank](const Entry& entry) { return entry.rank == rank; });
}

// The bounds of the guardian's ReportLog would be too small for all ranks together.
constexpr std::size_t kMaxReports = 4096;

// Each returns whether the mirror did not hold it yet.
bool Add(RankStarted started, HostedGeneration* hosted) {
  hosted->launched = true;
  if (HasRank(hosted->started, started.rank)) return false;
  hosted->started.push_back(std::move(started));
  return true;
}

bool Add(RankExited exited, HostedGeneration* hosted) {
  hosted->launched = true;
  if (HasRank(hosted->exited, exited.rank)) return false;
  hosted->exited.push_back(std::move(exited));
  return true;
}

bool Add(TrainerReport report, HostedGeneration* hosted) {
  if (hosted->reports.size() >= kMaxReports) hosted->reports.erase(hosted->reports.begin());
  hosted->reports.push_back(std::move(report));
  return true;
}

bool HasAllRanks(const Prepare& prepare, const HostedGeneration& hosted) {
  return std::all_of(prepare.ranks.begin(), prepare.ranks.end(), [&](const RankPlacement& each) {
    return HasRank(hosted.started, each.rank) || HasRank(hosted.exited, each.rank);
  });
}

}  // namespace

Effects Agent::On(const GuardianReported& reported) {
  Effects effects;
  if (Job* job = Find(reported.job))
    std::visit([&](const auto& e) { Apply(*job, e, &effects); }, reported.event);
  return effects;
}

void Agent::Apply(Job& job, const GuardianHello& hello, Effects*) {
  job.replay = HostedGeneration{.job = job.prepare.job,
                                .generation = std::max(hello.generation, job.hosted.generation)};
}

void Agent::Apply(Job& job, const GuardianPrepared& prepared, Effects* effects) {
  if (job.replay) {
    if (prepared.generation != job.replay->generation) return;
    job.replay->prepared = prepared.error.empty();
    job.replay->master_port = prepared.master_port;
    return;
  }
  if (!job.preparing || prepared.generation != job.prepare.generation) return;
  job.preparing->guardian = prepared;
  FinishPreparing(job, effects);
}

void Agent::Apply(Job& job, const GuardianRankStarted& started, Effects* effects) {
  HostedGeneration& mirror = job.replay ? *job.replay : job.hosted;
  if (started.generation != mirror.generation) return;
  const RankStarted message{.job = job.prepare.job,
                            .generation = started.generation,
                            .rank = started.rank,
                            .pid = started.pid};
  if (Add(message, &mirror) && !job.replay) effects->push_back(SendToCoordinator{message});
}

void Agent::Apply(Job& job, const GuardianRankExited& exited, Effects* effects) {
  HostedGeneration& mirror = job.replay ? *job.replay : job.hosted;
  if (exited.generation != mirror.generation) return;
  const RankExited message{.job = job.prepare.job,
                           .generation = exited.generation,
                           .rank = exited.rank,
                           .end = exited.end,
                           .age_seconds = exited.age_seconds,
                           .log_tail = exited.log_tail};
  if (!Add(message, &mirror) || job.replay) return;
  effects->push_back(LogNote{DescribeGeneration(job.prepare.job, exited.generation) + ": rank " +
                             std::to_string(exited.rank) +
                             " ended: " + DescribeExit(exited.end.exit)});
  effects->push_back(SendToCoordinator{message});
}

void Agent::Apply(Job& job, const GuardianReport& report, Effects* effects) {
  HostedGeneration& mirror = job.replay ? *job.replay : job.hosted;
  if (report.generation != mirror.generation) return;
  const Result<TrainerReport> message =
      ParseTrainerReport(job.prepare.job, report.generation, report.rank, report.json);
  if (!message.ok()) {
    effects->push_back(LogNote{DescribeGeneration(job.prepare.job, report.generation) + ", rank " +
                               std::to_string(report.rank) + ": " + message.status().message()});
    return;
  }
  if (Add(*message, &mirror) && !job.replay) effects->push_back(SendToCoordinator{*message});
}

void Agent::Apply(Job& job, const GuardianQuiesced& quiesced, Effects* effects) {
  HostedGeneration& mirror = job.replay ? *job.replay : job.hosted;
  // Nothing of the requested generation has begun: this concerns older ones, and may have crossed
  // the request.
  const bool older = job.preparing && !job.replay && quiesced.generation <= mirror.generation;
  // Or of processes that have outlived SIGKILL, and end beside a newer generation.
  const bool beside = !job.preparing && !job.replay && quiesced.generation < mirror.generation;
  if (quiesced.generation != mirror.generation && !older && !beside) return;
  job.unkillable = quiesced.unkillable_pids;
  std::vector<std::int64_t> left = job.Survivors();
  const bool empty = left.empty();
  const SendToCoordinator tell{Quiesced{job.prepare.job, quiesced.generation, std::move(left),
                                        quiesced.parked_ranks, quiesced.standbys,
                                        quiesced.next_master_port}};
  if (older || beside) return effects->push_back(tell);
  job.terminated = !job.preparing;
  mirror.quiesced = empty;
  mirror.parked_ranks = quiesced.parked_ranks;
  mirror.standbys = quiesced.standbys;
  if (!job.replay && AnswersAbort(job, true, quiesced.keeps_any())) effects->push_back(tell);
}

void Agent::Apply(Job& job, const GuardianSynced&, Effects* effects) {
  if (!job.replay) return;
  HostedGeneration told = *std::exchange(job.replay, std::nullopt);
  // The previous worker was killed between two launches: the rest is requested again.
  if (told.generation == job.prepare.generation && job.launches.empty() && !told.quiesced) {
    told.launched &= HasAllRanks(job.prepare, told);
  }
  const HostedGeneration before = job.hosted;
  // A newer generation may have arrived while the guardian reported the older one.
  if (!job.preparing && told.generation >= before.generation) job.hosted = told;
  if (before.generation == told.generation) {
    for (const RankStarted& started : told.started)
      if (!HasRank(before.started, started.rank)) effects->push_back(SendToCoordinator{started});
    for (const TrainerReport& report : told.reports)
      if (std::find(before.reports.begin(), before.reports.end(), report) == before.reports.end())
        effects->push_back(SendToCoordinator{report});
    for (const RankExited& exited : told.exited)
      if (!HasRank(before.exited, exited.rank)) effects->push_back(SendToCoordinator{exited});
    if (!before.quiesced && AnswersAbort(job, told.quiesced, told.keeps_any()))
      effects->push_back(SendToCoordinator{
          Quiesced{job.prepare.job, told.generation, {}, told.parked_ranks, told.standbys}});
  }
  const bool again = job.link == Link::kReady;
  job.link = Link::kReady;
  for (GuardianCommand& command : std::exchange(job.queued, {}))
    effects->push_back(SendToGuardian{job.prepare.job, std::move(command)});
  if (again) ReportAgain(job, effects);
}

bool Agent::AnswersAbort(const Job& job, bool quiesced, bool keeps_any) {
  const bool keeps_nobody = job.abort && job.abort->park_seconds <= 0;
  return quiesced && !(keeps_nobody && keeps_any);
}

void Agent::ReportAgain(Job& job, Effects* effects) {
  if (job.releasing) return Order(job, GuardianRelease{}, effects);
  // Its answer may have been lost as well.
  if (job.preparing && job.preparing->guardian_asked && !job.preparing->guardian)
    return AskGuardianToPrepare(job, effects);
  if (job.standby) Order(job, *job.standby, effects);
  if (job.abort && !AnswersAbort(job, job.hosted.quiesced, job.hosted.keeps_any()))
    return Order(job, *job.abort, effects);
  if (job.hosted.quiesced) return;
  job.hosted.launched |= !job.launches.empty();
  for (const GuardianLaunch& launch : job.launches)
    if (!HasRank(job.hosted.started, launch.rank)) Order(job, launch, effects);
  if (job.stop) Order(job, *job.stop, effects);
}

void Agent::Apply(Job& job, const GuardianRefused& refused, Effects* effects) {
  effects->push_back(LogNote{DescribeGeneration(job.prepare.job, refused.generation) +
                             ": the guardian refused a command: " + refused.message});
  if (job.preparing && refused.generation == job.prepare.generation)
    FailPreparing(job, "the guardian refused: " + refused.message, true, effects);
}

Effects Agent::On(const LaunchStaged& staged) {
  const auto& [launch, status] = staged;
  Effects effects;
  Job* job = Find(launch.job);
  // An abort or a newer generation may have arrived in the meantime.
  if (job == nullptr || job->staging != launch.generation || !job->spec) return effects;
  job->staging.reset();
  job->hosted.launched = true;
  if (!status.ok()) {
    for (const RankPlacement& placement : job->prepare.ranks)
      Apply(*job,
            GuardianRankExited{.generation = launch.generation,
                               .rank = placement.rank,
                               .end = {.exit = {.exit_code = kExitNotLaunched}},
                               .log_tail = {"muster: not launched: " + status.message()}},
            &effects);
    return effects;
  }
  job->launches = BuildLaunches(context_, *job->spec, job->prepare, launch, JobDir(launch.job));
  ReportCpuBinding(*job, &effects);
  for (const GuardianLaunch& command : job->launches) Order(*job, command, &effects);
  return effects;
}

Effects Agent::On(const ProvedGone& proof) {
  const auto& [id, records, unkillable_pids] = proof;
  Effects effects;
  Job* job = Find(id);
  if (job == nullptr || job->link != Link::kProving) return effects;
  job->link = Link::kAbsent;
  job->stuck = unkillable_pids;
  if (!job->stuck.empty()) effects.push_back(ScheduleStuckCheck{id});
  if (job->releasing) {
    Forget(*job, &effects);
    return effects;
  }
  if (job->preparing) {
    // A newer generation was requested during the proof that the old one is gone. The coordinator,
    // which counts the slots, decides whether there is room for it beside the unkillable processes.
    if (!job->stuck.empty())
      effects.push_back(SendToCoordinator{Quiesced{id, job->hosted.generation, job->stuck}});
    EnsureGuardian(*job, &effects);
    return effects;
  }
  const bool stopped = std::any_of(records.begin(), records.end(), [](const RankExited& record) {
    return record.end.node_stopped;
  });
  if (job->hosted.launched || stopped)
    for (const RankPlacement& placement : job->prepare.ranks) {
      if (HasRank(job->hosted.exited, placement.rank)) continue;
      const auto found = std::ranges::find(records, placement.rank, &RankExited::rank);
      const RankExited* record = found == records.end() ? nullptr : &*found;
      Apply(*job,
            GuardianRankExited{
                .generation = job->hosted.generation,
                .rank = placement.rank,
                .end = record != nullptr ? record->end : RankEnd{.exit = {.signal = SIGKILL}},
                .log_tail = record != nullptr
                                ? record->log_tail
                                : std::vector<std::string>{"muster: killed with its guardian"}},
            &effects);
    }
  Apply(*job, GuardianQuiesced{job->hosted.generation, {}, {}}, &effects);
  return effects;
}

Effects Agent::On(const StuckSeen& seen) {
  const auto& [id, ended] = seen;
  Effects effects;
  Job* job = Find(id);
  if (job == nullptr || job->stuck.empty() || job->link == Link::kProving) return effects;
  // While a guardian still sends its state, what is known of it may be old; once the job is
  // released, a proof decides.
  std::size_t gone = 0;
  if (!job->replay && !WaitsForStuck(*job))
    gone = std::erase_if(job->stuck, [&](std::int64_t pid) {
      return std::find(ended.begin(), ended.end(), pid) != ended.end();
    });
  if (!job->stuck.empty()) effects.push_back(ScheduleStuckCheck{id});
  if (gone > 0) ReportStuck(*job, &effects);
  return effects;
}

void Agent::ReportStuck(Job& job, Effects* effects) {
  if (job.terminated)
    return Apply(job,
                 GuardianQuiesced{job.hosted.generation, job.unkillable, job.hosted.parked_ranks,
                                  job.hosted.standbys},
                 effects);
  // The newest generation is in use. What has ended belongs to older ones, and is reported for
  // these.
  effects->push_back(
      SendToCoordinator{Quiesced{job.prepare.job, job.hosted.generation - 1, job.Survivors()}});
}

}  // namespace muster::worker
