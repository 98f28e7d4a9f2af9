#include "worker/agent/agent.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster::worker {
namespace {

void Send(WorkerMessage message, Effects* effects) {
  effects->push_back(SendToCoordinator{std::move(message)});
}

void Note(std::string text, Effects* effects) { effects->push_back(LogNote{std::move(text)}); }

}  // namespace

std::string DescribeGeneration(const JobId& job, Generation generation) {
  return "job " + job.value + " g" + std::to_string(generation);
}

Agent::Agent(LaunchContext context, std::string jobs_dir)
    : context_(std::move(context)), jobs_dir_(std::move(jobs_dir)) {}

Effects Agent::Handle(const Event& event) {
  return std::visit([this](const auto& e) { return On(e); }, event);
}

Effects Agent::On(const JobFound& found) {
  const auto& [prepare, spec, launched, guardian_alive] = found;
  Effects effects;
  Job& job = jobs_[prepare.job];
  job.prepare = prepare;
  job.spec = spec;
  job.hosted = {.job = prepare.job, .generation = prepare.generation, .launched = launched};
  if (guardian_alive) {
    job.link = Link::kStarting;
  } else {
    job.link = Link::kProving;
    effects.push_back(StartTerminationProof{prepare.job, prepare.generation});
  }
  return effects;
}

bool Agent::IsStale(const Job& job, Generation generation) const {
  return generation < job.hosted.generation;
}

Agent::Job* Agent::Find(const JobId& job) {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second;
}

const Prepare* Agent::FindPrepare(const JobId& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second.prepare;
}

void Agent::Order(Job& job, GuardianCommand command, Effects* effects) {
  if (job.link == Link::kReady)
    effects->push_back(SendToGuardian{job.prepare.job, std::move(command)});
  else
    job.queued.push_back(std::move(command));
}

void Agent::EnsureGuardian(Job& job, Effects* effects) {
  if (job.link != Link::kAbsent) return;
  job.link = Link::kStarting;
  effects->push_back(StartGuardian{job.prepare.job});
}

Effects Agent::On(const Prepare& prepare) {
  Effects effects;
  Job& job = jobs_[prepare.job];
  if (IsStale(job, prepare.generation)) return effects;
  if (WaitsForStuck(job)) {
    job.releasing = false;  // they delay nothing but their slots
  } else if (job.releasing) {
    job.next = prepare;
    return effects;
  }
  if (job.hosted.generation == prepare.generation) {
    // A repeated message: the answer may have been lost.
    if (job.hosted.prepared)
      Send(Prepared{.job = prepare.job,
                    .generation = prepare.generation,
                    .master_port = job.hosted.master_port,
                    .cuda = job.cuda},
           &effects);
    if (job.hosted.prepared || job.preparing) return effects;
  }
  // A guardian that is still to say what is left there may have kept all of them.
  const bool left_known = job.link == Link::kAbsent || job.hosted.quiesced;
  const int first_ranks = left_known ? static_cast<int>(prepare.ranks.size()) -
                                           static_cast<int>(job.hosted.parked_ranks.size())
                                     : 0;
  const bool same_spec = job.spec && job.prepare.spec_yaml == prepare.spec_yaml;
  if (!same_spec) job.spec.reset();
  job.prepare = prepare;
  job.preparing = Preparing{.first_ranks = std::max(0, first_ranks)};
  job.staging.reset();
  job.launches.clear();
  job.stop.reset();
  job.abort.reset();
  job.replay.reset();
  job.terminated = false;
  job.hosted = {.job = prepare.job, .generation = prepare.generation};
  effects.push_back(StartPreflight{prepare});
  EnsureGuardian(job, &effects);
  // The kind of the master's socket depends on the job file, which preflight parses; if it is known
  // from an earlier generation, both start at once.
  if (job.spec) AskGuardianToPrepare(job, &effects);
  return effects;
}

void Agent::AskGuardianToPrepare(Job& job, Effects* effects) {
  job.preparing->guardian_asked = true;
  Order(job,
        GuardianPrepare{.generation = job.prepare.generation,
                        .master = MasterSocketFor(*job.spec, job.prepare.hosts_master),
                        .bind_address = job.prepare.master_bind_address,
                        .spare = job.prepare.spare},
        effects);
  if (!job.spec->train) return;
  job.standby = BuildStandby(context_, *job.spec, job.prepare, JobDir(job.prepare.job));
  job.standby->first = job.preparing->first_ranks;
  Order(job, *job.standby, effects);
}

Effects Agent::On(const PreflightDone& done) {
  const auto& [id, generation, result] = done;
  Effects effects;
  Job* job = Find(id);
  if (job == nullptr || !job->preparing || job->prepare.generation != generation) return effects;
  if (!result.status.ok()) {
    FailPreparing(*job, result.status.message(), result.retryable, &effects);
    return effects;
  }
  job->spec = result.spec;
  job->cuda = result.cuda;
  job->preparing->preflight_done = true;
  if (!job->preparing->guardian_asked) AskGuardianToPrepare(*job, &effects);
  FinishPreparing(*job, &effects);
  return effects;
}

void Agent::FailPreparing(Job& job, const std::string& error, bool retryable, Effects* effects) {
  job.preparing.reset();
  Send(Prepared{.job = job.prepare.job,
                .generation = job.prepare.generation,
                .error = error,
                .retryable = retryable},
       effects);
}

void Agent::FinishPreparing(Job& job, Effects* effects) {
  if (!job.preparing->preflight_done || !job.preparing->guardian) return;
  const GuardianPrepared guardian = *job.preparing->guardian;
  if (!guardian.error.empty()) {
    FailPreparing(job, guardian.error, true, effects);
    return;
  }
  const std::optional<Launch> launch = std::move(job.preparing->launch);
  job.preparing.reset();
  job.hosted.prepared = true;
  job.hosted.master_port = guardian.master_port;
  Send(Prepared{.job = job.prepare.job,
                .generation = job.prepare.generation,
                .master_port = guardian.master_port,
                .cuda = job.cuda},
       effects);
  // Otherwise the port ended with a guardian, and the coordinator aborts the generation.
  const bool fits =
      launch && (!job.prepare.hosts_master || launch->master_port == guardian.master_port);
  if (fits) std::ranges::move(On(*launch), std::back_inserter(*effects));
}

Effects Agent::On(const Launch& launch) {
  Effects effects;
  Job* job = Find(launch.job);
  if (job != nullptr && job->preparing && job->prepare.generation == launch.generation) {
    job->preparing->launch = launch;
    return effects;
  }
  const bool fits = job != nullptr && job->hosted.generation == launch.generation &&
                    job->hosted.prepared && !job->hosted.launched && !job->hosted.quiesced &&
                    !job->staging && !job->releasing;
  if (!fits) {
    Note(DescribeGeneration(launch.job, launch.generation) +
             ": a launch that is repeated or not prepared here is ignored",
         &effects);
    return effects;
  }
  job->staging = launch.generation;
  effects.push_back(StageLaunch{launch, job->prepare});
  return effects;
}

// To the log of every node; to the job's own events if there was something to choose, from the node
// of rank 0 for all.
void Agent::ReportCpuBinding(const Job& job, Effects* effects) const {
  const CpuBindingPlan plan = PlanRankCpus(context_, *job.spec, job.prepare);
  const Generation generation = job.prepare.generation;
  Note(DescribeGeneration(job.prepare.job, generation) + ": " + plan.sentence, effects);
  if (!plan.notable || !job.prepare.hosts_master || job.prepare.ranks.empty()) return;
  Send(TrainerReport{.job = job.prepare.job,
                     .generation = generation,
                     .rank = job.prepare.ranks.front().rank,
                     .body = TrainerNote{.severity = "info", .message = plan.sentence}},
       effects);
}

Effects Agent::On(const Abort& abort) {
  Effects effects;
  Job* job = Find(abort.job);
  if (job == nullptr) {
    Send(Quiesced{abort.job, abort.generation, {}}, &effects);
    return effects;
  }
  if (IsStale(*job, abort.generation)) return effects;
  if (WaitsForStuck(*job)) {
    Send(Quiesced{abort.job, abort.generation, job->stuck}, &effects);
    return effects;
  }
  if (job->releasing) {
    job->aborted = std::max(job->aborted, abort.generation);
    if (job->next && job->next->generation <= job->aborted) job->next.reset();
    return effects;
  }
  job->preparing.reset();
  job->staging.reset();
  if (abort.generation > job->hosted.generation) {
    // Fences a generation that never came here; what runs is older and ends too.
    job->hosted = {.job = abort.job, .generation = abort.generation};
    job->terminated = false;
    job->prepare.generation = abort.generation;
  }
  switch (job->link) {
    case Link::kReady:
    case Link::kStarting:
      job->launches.clear();
      job->stop.reset();
      if (abort.park_seconds <= 0) job->standby.reset();
      job->hosted.quiesced = false;
      job->hosted.prepared = false;  // another Prepare of this generation is no repetition
      job->abort = GuardianAbort{.generation = abort.generation,
                                 .grace_seconds = abort.grace_seconds,
                                 .reason = abort.reason,
                                 .park_seconds = abort.park_seconds,
                                 .kill_ranks = abort.kill_ranks};
      if (!abort.next_master_bind_address.empty() && job->spec) {
        job->abort->next_master = MasterSocketFor(*job->spec, true);
        job->abort->next_bind_address = abort.next_master_bind_address;
      }
      Order(*job, *job->abort, &effects);
      break;
    case Link::kAbsent:
      job->link = Link::kProving;
      effects.push_back(StartTerminationProof{abort.job, abort.generation});
      break;
    case Link::kProving: break;  // its end is the answer
  }
  return effects;
}

Effects Agent::On(const Release& release) {
  Effects effects;
  Job* job = Find(release.job);
  if (job == nullptr) {
    Send(Released{release.job}, &effects);
    return effects;
  }
  if (WaitsForStuck(*job))
    Send(Quiesced{release.job, job->hosted.generation, job->stuck}, &effects);
  if (job->releasing) return effects;
  job->releasing = true;
  job->preparing.reset();
  job->staging.reset();
  if (job->link == Link::kAbsent)
    Forget(*job, &effects);
  else if (job->link != Link::kProving)
    Order(*job, GuardianRelease{}, &effects);
  return effects;
}

Effects Agent::On(const Stop& stop) {
  Effects effects;
  Job* job = Find(stop.job);
  const bool runs = job != nullptr && job->hosted.generation == stop.generation &&
                    job->hosted.launched && !job->hosted.quiesced && !job->abort && !job->releasing;
  if (!runs) return effects;
  job->stop = GuardianStop{stop.generation, stop.reason};
  Order(*job, *job->stop, &effects);
  return effects;
}

Effects Agent::On(const InjectFault& fault) {
  Effects effects;
  Job* job = Find(fault.job);
  const auto holds_rank = [&](const auto& entries) {
    return std::ranges::any_of(entries, [&](const auto& e) { return e.rank == fault.rank; });
  };
  std::string error;
  if (job == nullptr || job->hosted.generation != fault.generation)
    error = "generation " + std::to_string(fault.generation) + " of the job is not on this node";
  else if (!holds_rank(job->hosted.started) || holds_rank(job->hosted.exited) ||
           job->link != Link::kReady)
    error = "rank " + std::to_string(fault.rank) + " does not run on this node";
  if (error.empty())
    Order(*job, GuardianFault{fault.generation, fault.rank, fault.kind, fault.argument}, &effects);
  Send(FaultDone{fault.request_id, error}, &effects);
  return effects;
}

Effects Agent::On(const GuardianLost& lost) {
  const auto& [id, why] = lost;
  Effects effects;
  Job* job = Find(id);
  if (job == nullptr || job->link == Link::kAbsent || job->link == Link::kProving) return effects;
  if (!job->releasing)
    Note(DescribeGeneration(id, job->hosted.generation) + ": the guardian is gone: " + why,
         &effects);
  if (job->preparing) FailPreparing(*job, "the guardian ended: " + why, true, &effects);
  job->link = Link::kProving;
  job->hosted.prepared = false;
  job->queued.clear();
  job->replay.reset();
  job->staging.reset();
  job->standby.reset();
  job->launches.clear();
  job->stop.reset();
  job->abort.reset();
  job->unkillable.clear();
  effects.push_back(StartTerminationProof{id, job->hosted.generation});
  return effects;
}

void Agent::Forget(Job& job, Effects* effects) {
  const JobId id = job.prepare.job;
  if (job.stuck.empty()) {
    effects->push_back(ForgetJob{id});
    return;
  }
  const Generation generation = std::max(job.hosted.generation, std::exchange(job.aborted, 0));
  Send(Quiesced{id, generation, job.stuck}, effects);
  if (const std::optional<Prepare> next = std::exchange(job.next, std::nullopt))
    std::ranges::move(On(*next), std::back_inserter(*effects));
}

Effects Agent::On(const StuckDue& due) {
  const JobId& id = due.job;
  Effects effects;
  Job* job = Find(id);
  // A proof that is under way finds them itself.
  if (job == nullptr || job->stuck.empty() || job->link == Link::kProving) return effects;
  if (WaitsForStuck(*job)) {
    job->link = Link::kProving;
    effects.push_back(StartTerminationProof{id, job->hosted.generation});
  } else {
    // A proof would end what a newer guardian runs.
    effects.push_back(CheckStuck{id, job->stuck});
  }
  return effects;
}

Effects Agent::On(const Forgotten& forgotten) {
  const JobId& id = forgotten.job;
  Effects effects;
  std::optional<Prepare> next;
  if (Job* job = Find(id); job != nullptr && job->link == Link::kAbsent) {
    if (job->aborted > 0) Send(Quiesced{id, job->aborted, {}}, &effects);
    next = std::move(job->next);
  }
  jobs_.erase(id);
  Send(Released{id}, &effects);
  if (next) std::ranges::move(On(*next), std::back_inserter(effects));
  return effects;
}

std::vector<HostedGeneration> Agent::Hosted() const {
  std::vector<HostedGeneration> hosted;
  for (const auto& [id, job] : jobs_) {
    hosted.push_back(job.hosted);
    hosted.back().unkillable_pids = job.Survivors();
  }
  return hosted;
}

std::vector<GpuUse> Agent::GpusInUse() const {
  std::vector<GpuUse> uses;
  for (const auto& [id, job] : jobs_) {
    const bool on_gpus = job.spec && job.spec->resources.device == "cuda";
    if (!on_gpus || context_.gpus.empty() || job.hosted.quiesced) continue;
    for (const RankStarted& started : job.hosted.started) {
      const auto is_it = [&](const auto& other) { return other.rank == started.rank; };
      if (std::ranges::any_of(job.hosted.exited, is_it)) continue;
      const auto place = std::ranges::find_if(job.prepare.ranks, is_it);
      if (place == job.prepare.ranks.end()) continue;
      const auto local = static_cast<std::size_t>(place->local_rank);  // as AddGpu gives them out
      for (std::size_t i = 0; i < context_.gpus.size(); ++i) {
        if (job.spec->resources.sees_all_gpus || i == local % context_.gpus.size())
          uses.push_back({id, context_.gpus[i]});
      }
    }
  }
  return uses;
}

bool Agent::AllSettled() const {
  return std::none_of(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    const Job& job = entry.second;
    return job.link == Link::kStarting || (job.link == Link::kProving && job.stuck.empty());
  });
}

}  // namespace muster::worker
