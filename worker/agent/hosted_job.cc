#include "worker/agent/hosted_job.h"

#include <algorithm>
#include <set>
#include <utility>

namespace muster::worker {

HostedJob::HostedJob(const LaunchContext& context, std::string dir)
    : context_(context), dir_(std::move(dir)) {}

void HostedJob::On(const JobFound& found, Effects* effects) {
  prepare_ = found.prepare;
  spec_ = found.spec;
  mirror_.Begin(prepare_.job, prepare_.generation);
  mirror_.hosted.launched = found.launched;
  if (found.guardian_alive)
    link_ = Link::kStarting;
  else
    StartProof(effects);
}

HostedGeneration HostedJob::Hosted() const {
  HostedGeneration hosted = mirror_.hosted;
  hosted.unkillable_pids = Survivors();
  // Until nothing is left of the job, its guardian has them, or is about to.
  if (!hosted.quiesced || hosted.keeps_any()) hosted.devices = prepare_.devices;
  return hosted;
}

bool HostedJob::Settled() const {
  return link_ != Link::kStarting && (link_ != Link::kProving || !stuck_.empty());
}

std::vector<std::string> HostedJob::GpusInUse() const {
  if (!spec_ || mirror_.hosted.quiesced) return {};
  std::set<std::string> gpus;
  for (const RankStarted& started : mirror_.hosted.started) {
    if (HasRank(mirror_.hosted.exited, started.rank)) continue;
    const auto place = std::ranges::find(prepare_.ranks, started.rank, &RankPlacement::rank);
    if (place == prepare_.ranks.end()) continue;
    const std::vector<std::string> seen = DevicesSeenByRank(*spec_, prepare_, place->local_rank);
    gpus.insert(seen.begin(), seen.end());
  }
  return {gpus.begin(), gpus.end()};
}

std::vector<std::int64_t> HostedJob::Survivors() const {
  std::vector<std::int64_t> pids = unkillable_;
  pids.insert(pids.end(), stuck_.begin(), stuck_.end());
  return pids;
}

bool HostedJob::IsStale(Generation generation) const {
  return generation < mirror_.hosted.generation;
}

void HostedJob::StartProof(Effects* effects) {
  link_ = Link::kProving;
  effects->push_back(StartTerminationProof{prepare_.job, mirror_.hosted.generation});
}

void HostedJob::Order(GuardianCommand command, Effects* effects) {
  if (link_ == Link::kReady)
    effects->push_back(SendToGuardian{prepare_.job, std::move(command)});
  else
    queued_.push_back(std::move(command));
}

void HostedJob::EnsureGuardian(Effects* effects) {
  if (link_ != Link::kAbsent) return;
  link_ = Link::kStarting;
  effects->push_back(StartGuardian{prepare_.job});
}

void HostedJob::On(const Prepare& prepare, Effects* effects) {
  if (IsStale(prepare.generation)) return;
  if (WaitsForStuck()) {
    releasing_ = false;  // they delay nothing but their slots
  } else if (releasing_) {
    next_ = prepare;
    return;
  }
  if (mirror_.hosted.generation == prepare.generation) {
    // A repeated message: the answer may have been lost.
    if (mirror_.hosted.prepared) SendPrepared(effects);
    if (mirror_.hosted.prepared || preparing_) return;
  }
  // A guardian that has not reported what is left may have kept all of them.
  const bool left_known = link_ == Link::kAbsent || mirror_.hosted.quiesced;
  const int first_ranks = left_known ? static_cast<int>(prepare.ranks.size()) -
                                           static_cast<int>(mirror_.hosted.parked_ranks.size())
                                     : 0;
  const bool same_spec = spec_ && prepare_.spec_yaml == prepare.spec_yaml;
  if (!same_spec) spec_.reset();
  prepare_ = prepare;
  preparing_ = Preparing{.first_ranks = std::max(0, first_ranks)};
  staging_.reset();
  launches_.clear();
  stop_.reset();
  abort_.reset();
  mirror_.replay.reset();
  terminated_ = false;
  mirror_.Begin(prepare.job, prepare.generation);
  effects->push_back(StartPreflight{prepare});
  EnsureGuardian(effects);
  // The kind of the master's socket depends on the job file, which preflight parses; if it is known
  // from an earlier generation, both start at once.
  if (spec_) AskGuardianToPrepare(effects);
}

void HostedJob::AskGuardianToPrepare(Effects* effects) {
  preparing_->guardian_asked = true;
  Order(GuardianPrepare{.generation = prepare_.generation,
                        .master = MasterSocketFor(*spec_, prepare_.hosts_master),
                        .bind_address = prepare_.master_bind_address,
                        .spare = prepare_.spare,
                        .devices = prepare_.devices,
                        .memory_limit_bytes = spec_->resources.per_node().memory_bytes()},
        effects);
  // A process that waits would start without the secrets, which are fetched for a generation.
  if (!spec_->train || !spec_->secrets.empty()) return;
  standby_ = BuildStandby(context_, *spec_, prepare_, dir_);
  standby_->first = preparing_->first_ranks;
  Order(*standby_, effects);
}

void HostedJob::On(const PreflightDone& done, Effects* effects) {
  const PreflightResult& result = done.result;
  if (!preparing_ || prepare_.generation != done.generation) return;
  if (!result.status.ok()) {
    FailPreparing(result.status.message(), result.retryable, effects);
    return;
  }
  spec_ = result.spec;
  cuda_ = result.cuda;
  preparing_->preflight_done = true;
  if (!preparing_->guardian_asked) AskGuardianToPrepare(effects);
  FinishPreparing(effects);
}

void HostedJob::SendPrepared(Effects* effects) const {
  effects->push_back(SendToCoordinator{Prepared{.job = mirror_.hosted.job,
                                                .generation = mirror_.hosted.generation,
                                                .master_port = mirror_.hosted.master_port,
                                                .cuda = cuda_}});
}

void HostedJob::FailPreparing(const std::string& error, bool retryable, Effects* effects) {
  preparing_.reset();
  effects->push_back(SendToCoordinator{Prepared{.job = prepare_.job,
                                                .generation = prepare_.generation,
                                                .error = error,
                                                .retryable = retryable}});
}

void HostedJob::FinishPreparing(Effects* effects) {
  if (!preparing_->preflight_done || !preparing_->guardian) return;
  const GuardianPrepared guardian = *preparing_->guardian;
  if (!guardian.error.empty()) {
    FailPreparing(guardian.error, true, effects);
    return;
  }
  const std::optional<Launch> launch = std::move(preparing_->launch);
  preparing_.reset();
  mirror_.hosted.prepared = true;
  mirror_.hosted.master_port = guardian.master_port;
  SendPrepared(effects);
  // Otherwise the port ended with a guardian, and the coordinator aborts the generation.
  const bool fits =
      launch && (!prepare_.hosts_master || launch->master_port == guardian.master_port);
  if (fits) On(*launch, effects);
}

void HostedJob::On(const Launch& launch, Effects* effects) {
  if (preparing_ && prepare_.generation == launch.generation) {
    preparing_->launch = launch;
    return;
  }
  const HostedGeneration& hosted = mirror_.hosted;
  const bool fits = hosted.generation == launch.generation && hosted.prepared && !hosted.launched &&
                    !hosted.quiesced && !staging_ && !releasing_;
  if (!fits) {
    effects->push_back(LogNote{DescribeGeneration(launch.job, launch.generation) +
                               ": a launch that is repeated or not prepared here is ignored"});
    return;
  }
  staging_ = launch.generation;
  effects->push_back(StageLaunch{launch, prepare_, !spec_->secrets.empty()});
}

void HostedJob::On(const Abort& abort, Effects* effects) {
  if (IsStale(abort.generation)) return;
  if (WaitsForStuck()) {
    effects->push_back(SendToCoordinator{
        Quiesced{.job = abort.job, .generation = abort.generation, .unkillable_pids = stuck_}});
    return;
  }
  if (releasing_) {
    aborted_ = std::max(aborted_, abort.generation);
    if (next_ && next_->generation <= aborted_) next_.reset();
    return;
  }
  preparing_.reset();
  staging_.reset();
  if (abort.generation > mirror_.hosted.generation) {
    // Fences a generation that never came here; what runs is older and ends too.
    mirror_.Begin(abort.job, abort.generation);
    terminated_ = false;
    prepare_.generation = abort.generation;
  }
  switch (link_) {
    case Link::kReady:
    case Link::kStarting:
      launches_.clear();
      stop_.reset();
      if (abort.park_seconds <= 0) standby_.reset();
      mirror_.hosted.quiesced = false;
      mirror_.hosted.prepared = false;  // another Prepare of this generation is no repetition
      abort_ = GuardianAbort{.generation = abort.generation,
                             .grace_seconds = abort.grace_seconds,
                             .reason = abort.reason,
                             .park_seconds = abort.park_seconds,
                             .kill_ranks = abort.kill_ranks};
      if (!abort.next_master_bind_address.empty() && spec_) {
        abort_->next_master = MasterSocketFor(*spec_, true);
        abort_->next_bind_address = abort.next_master_bind_address;
      }
      Order(*abort_, effects);
      break;
    case Link::kAbsent: StartProof(effects); break;
    case Link::kProving: break;  // its end is the answer
  }
}

void HostedJob::On(const Release& release, Effects* effects) {
  if (WaitsForStuck())
    effects->push_back(SendToCoordinator{Quiesced{
        .job = release.job, .generation = mirror_.hosted.generation, .unkillable_pids = stuck_}});
  if (releasing_) return;
  releasing_ = true;
  preparing_.reset();
  staging_.reset();
  if (link_ == Link::kAbsent)
    Forget(effects);
  else if (link_ != Link::kProving)
    Order(GuardianRelease{}, effects);
}

void HostedJob::On(const Stop& stop, Effects* effects) {
  const HostedGeneration& hosted = mirror_.hosted;
  const bool runs = hosted.generation == stop.generation && hosted.launched && !hosted.quiesced &&
                    !abort_ && !releasing_;
  if (!runs) return;
  stop_ = GuardianStop{stop.generation, stop.reason};
  Order(*stop_, effects);
}

void HostedJob::On(const InjectFault& fault, Effects* effects) {
  const HostedGeneration& hosted = mirror_.hosted;
  std::string error;
  if (hosted.generation != fault.generation)
    error = "generation " + std::to_string(fault.generation) + " of the job is not on this node";
  else if (!HasRank(hosted.started, fault.rank) || HasRank(hosted.exited, fault.rank) ||
           link_ != Link::kReady)
    error = "rank " + std::to_string(fault.rank) + " does not run on this node";
  if (error.empty())
    Order(GuardianFault{.generation = fault.generation,
                        .rank = fault.rank,
                        .kind = fault.kind,
                        .argument = fault.argument},
          effects);
  effects->push_back(SendToCoordinator{FaultDone{fault.request_id, error}});
}

void HostedJob::On(const GuardianLost& lost, Effects* effects) {
  const auto& [id, why] = lost;
  if (link_ == Link::kAbsent || link_ == Link::kProving) return;
  if (!releasing_)
    effects->push_back(LogNote{DescribeGeneration(id, mirror_.hosted.generation) +
                               ": the guardian is gone: " + why});
  if (preparing_) FailPreparing("the guardian ended: " + why, true, effects);
  mirror_.hosted.prepared = false;
  queued_.clear();
  mirror_.replay.reset();
  staging_.reset();
  standby_.reset();
  launches_.clear();
  stop_.reset();
  abort_.reset();
  unkillable_.clear();
  StartProof(effects);
}

void HostedJob::Forget(Effects* effects) {
  const JobId id = prepare_.job;
  if (stuck_.empty()) {
    effects->push_back(ForgetJob{id});
    return;
  }
  const Generation generation = std::max(mirror_.hosted.generation, std::exchange(aborted_, 0));
  effects->push_back(
      SendToCoordinator{Quiesced{.job = id, .generation = generation, .unkillable_pids = stuck_}});
  if (const std::optional<Prepare> next = std::exchange(next_, std::nullopt)) On(*next, effects);
}

void HostedJob::On(const StuckDue& due, Effects* effects) {
  // A proof that is under way finds them itself.
  if (stuck_.empty() || link_ == Link::kProving) return;
  if (WaitsForStuck())
    StartProof(effects);
  else  // a proof would end what a newer guardian runs
    effects->push_back(CheckStuck{due.job, stuck_});
}

std::optional<Prepare> HostedJob::Ended(Effects* effects) {
  if (link_ != Link::kAbsent) return std::nullopt;
  if (aborted_ > 0)
    effects->push_back(SendToCoordinator{Quiesced{.job = prepare_.job, .generation = aborted_}});
  return std::move(next_);
}

}  // namespace muster::worker
