// The upper half of HostedJob: what became of ranks. What is found without a guardian is handled as
// a report of one.

#include <signal.h>

#include <algorithm>
#include <utility>

#include "worker/agent/hosted_job.h"

namespace muster::worker {
namespace {

constexpr int kExitNotLaunched = 127;

bool HasAllRanks(const Prepare& prepare, const HostedGeneration& hosted) {
  return std::all_of(prepare.ranks.begin(), prepare.ranks.end(), [&](const RankPlacement& each) {
    return HasRank(hosted.started, each.rank) || HasRank(hosted.exited, each.rank);
  });
}

// Every node logs it. If there was something to choose, the node of rank 0 also records it in the
// job's events.
void ReportCpuBinding(const CpuBindingPlan& plan, const Prepare& prepare, Effects* effects) {
  effects->push_back(
      LogNote{DescribeGeneration(prepare.job, prepare.generation) + ": " + plan.sentence});
  if (!plan.notable || !prepare.hosts_master || prepare.ranks.empty()) return;
  effects->push_back(SendToCoordinator{
      TrainerReport{.job = prepare.job,
                    .generation = prepare.generation,
                    .rank = prepare.ranks.front().rank,
                    .body = TrainerNote{.severity = "info", .message = plan.sentence}}});
}

}  // namespace

void HostedJob::On(const GuardianReported& reported, Effects* effects) {
  std::visit([&](const auto& e) { Apply(e, effects); }, reported.event);
}

void HostedJob::Apply(const GuardianPrepared& prepared, Effects* effects) {
  if (mirror_.replay) {
    if (prepared.generation != mirror_.replay->generation) return;
    mirror_.replay->prepared = prepared.error.empty();
    mirror_.replay->master_port = prepared.master_port;
    return;
  }
  if (!preparing_ || prepared.generation != prepare_.generation) return;
  preparing_->guardian = prepared;
  FinishPreparing(effects);
}

void HostedJob::Apply(const GuardianQuiesced& quiesced, Effects* effects) {
  HostedGeneration& mirror = mirror_.Reported();
  // Nothing of the requested generation has begun: this concerns older ones, and may have crossed
  // the request.
  const bool older = preparing_ && !mirror_.replay && quiesced.generation <= mirror.generation;
  // Or of processes that have outlived SIGKILL, and end beside a newer generation.
  const bool beside = !preparing_ && !mirror_.replay && quiesced.generation < mirror.generation;
  if (quiesced.generation != mirror.generation && !older && !beside) return;
  unkillable_ = quiesced.unkillable_pids;
  std::vector<std::int64_t> left = Survivors();
  const bool empty = left.empty();
  const SendToCoordinator tell{Quiesced{.job = prepare_.job,
                                        .generation = quiesced.generation,
                                        .unkillable_pids = std::move(left),
                                        .parked_ranks = quiesced.parked_ranks,
                                        .standbys = quiesced.standbys,
                                        .next_master_port = quiesced.next_master_port}};
  if (older || beside) return effects->push_back(tell);
  terminated_ = !preparing_;
  mirror.quiesced = empty;
  mirror.parked_ranks = quiesced.parked_ranks;
  mirror.standbys = quiesced.standbys;
  if (!mirror_.replay && AnswersAbort(true, quiesced.keeps_any())) effects->push_back(tell);
}

void HostedJob::Apply(const GuardianSynced&, Effects* effects) {
  if (!mirror_.replay) return;
  HostedGeneration replayed = *std::exchange(mirror_.replay, std::nullopt);
  // The previous worker was killed between two launches: the rest is requested again.
  if (replayed.generation == prepare_.generation && launches_.empty() && !replayed.quiesced)
    replayed.launched &= HasAllRanks(prepare_, replayed);
  if (mirror_.hosted.generation == replayed.generation) {
    mirror_.SendNews(replayed, effects);
    if (!mirror_.hosted.quiesced && AnswersAbort(replayed.quiesced, replayed.keeps_any()))
      effects->push_back(SendToCoordinator{Quiesced{.job = prepare_.job,
                                                    .generation = replayed.generation,
                                                    .parked_ranks = replayed.parked_ranks,
                                                    .standbys = replayed.standbys}});
  }
  // A newer generation may have arrived while the guardian reported the older one.
  if (!preparing_ && replayed.generation >= mirror_.hosted.generation)
    mirror_.hosted = std::move(replayed);
  const bool again = link_ == Link::kReady;
  link_ = Link::kReady;
  for (GuardianCommand& command : std::exchange(queued_, {}))
    effects->push_back(SendToGuardian{prepare_.job, std::move(command)});
  if (again) OrderAgain(effects);
}

bool HostedJob::AnswersAbort(bool quiesced, bool keeps_any) const {
  const bool keeps_nobody = abort_ && abort_->park_seconds <= 0;
  return quiesced && !(keeps_nobody && keeps_any);
}

void HostedJob::OrderAgain(Effects* effects) {
  if (releasing_) return Order(GuardianRelease{}, effects);
  // Its answer may have been lost as well.
  if (preparing_ && preparing_->guardian_asked && !preparing_->guardian)
    return AskGuardianToPrepare(effects);
  if (standby_) Order(*standby_, effects);
  if (abort_ && !AnswersAbort(mirror_.hosted.quiesced, mirror_.hosted.keeps_any()))
    return Order(*abort_, effects);
  if (mirror_.hosted.quiesced) return;
  mirror_.hosted.launched |= !launches_.empty();
  for (const GuardianLaunch& launch : launches_)
    if (!HasRank(mirror_.hosted.started, launch.rank)) Order(launch, effects);
  if (stop_) Order(*stop_, effects);
}

void HostedJob::Apply(const GuardianRefused& refused, Effects* effects) {
  effects->push_back(LogNote{DescribeGeneration(prepare_.job, refused.generation) +
                             ": the guardian refused a command: " + refused.message});
  if (preparing_ && refused.generation == prepare_.generation)
    FailPreparing("the guardian refused: " + refused.message, true, effects);
}

void HostedJob::On(const LaunchStaged& staged, Effects* effects) {
  const auto& [launch, status] = staged;
  // An abort or a newer generation may have arrived in the meantime.
  if (staging_ != launch.generation || !spec_) return;
  staging_.reset();
  mirror_.hosted.launched = true;
  if (!status.ok()) {
    for (const RankPlacement& placement : prepare_.ranks)
      Apply(GuardianRankExited{.generation = launch.generation,
                               .rank = placement.rank,
                               .end = {.exit = {.exit_code = kExitNotLaunched}},
                               .log_tail = {"muster: not launched: " + status.message()}},
            effects);
    return;
  }
  launches_ = BuildLaunches(context_, *spec_, prepare_, launch, dir_);
  ReportCpuBinding(PlanRankCpus(context_, *spec_, prepare_), prepare_, effects);
  for (const GuardianLaunch& command : launches_) Order(command, effects);
}

void HostedJob::On(const ProvedGone& proof, Effects* effects) {
  const auto& [id, records, unkillable_pids] = proof;
  if (link_ != Link::kProving) return;
  link_ = Link::kAbsent;
  stuck_ = unkillable_pids;
  if (!stuck_.empty()) effects->push_back(ScheduleStuckCheck{id});
  if (releasing_) {
    Forget(effects);
    return;
  }
  if (preparing_) {
    // A newer generation was requested during the proof that the old one is gone. The coordinator,
    // which counts the slots, decides whether there is room for it beside the unkillable processes.
    if (!stuck_.empty())
      effects->push_back(SendToCoordinator{
          Quiesced{.job = id, .generation = mirror_.hosted.generation, .unkillable_pids = stuck_}});
    EnsureGuardian(effects);
    return;
  }
  const bool stopped = std::any_of(records.begin(), records.end(), [](const RankExited& record) {
    return record.end.node_stopped;
  });
  if (mirror_.hosted.launched || stopped)
    for (const RankPlacement& placement : prepare_.ranks) {
      if (HasRank(mirror_.hosted.exited, placement.rank)) continue;
      const auto found = std::ranges::find(records, placement.rank, &RankExited::rank);
      const RankExited* record = found == records.end() ? nullptr : &*found;
      Apply(
          GuardianRankExited{
              .generation = mirror_.hosted.generation,
              .rank = placement.rank,
              .end = record != nullptr ? record->end : RankEnd{.exit = {.signal = SIGKILL}},
              .log_tail = record != nullptr
                              ? record->log_tail
                              : std::vector<std::string>{"muster: killed with its guardian"}},
          effects);
    }
  Apply(GuardianQuiesced{.generation = mirror_.hosted.generation}, effects);
}

void HostedJob::On(const StuckSeen& seen, Effects* effects) {
  if (stuck_.empty() || link_ == Link::kProving) return;
  // While a guardian still sends its state, what is known of it may be old; once the job is
  // released, a proof decides.
  std::size_t gone = 0;
  if (!mirror_.replay && !WaitsForStuck())
    gone = std::erase_if(stuck_, [&](std::int64_t pid) {
      return std::find(seen.ended.begin(), seen.ended.end(), pid) != seen.ended.end();
    });
  if (!stuck_.empty()) effects->push_back(ScheduleStuckCheck{seen.job});
  if (gone > 0) ReportStuck(effects);
}

void HostedJob::ReportStuck(Effects* effects) {
  if (terminated_)
    return Apply(GuardianQuiesced{.generation = mirror_.hosted.generation,
                                  .unkillable_pids = unkillable_,
                                  .parked_ranks = mirror_.hosted.parked_ranks,
                                  .standbys = mirror_.hosted.standbys},
                 effects);
  // The newest generation is in use. What has ended belongs to older ones, and is reported for
  // these.
  effects->push_back(SendToCoordinator{Quiesced{.job = prepare_.job,
                                                .generation = mirror_.hosted.generation - 1,
                                                .unkillable_pids = Survivors()}});
}

}  // namespace muster::worker
