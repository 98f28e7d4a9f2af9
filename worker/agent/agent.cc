#include "worker/agent/agent.h"

#include <algorithm>
#include <utility>

namespace muster::worker {

std::string DescribeGeneration(const JobId& job, Generation generation) {
  return "job " + job.value + " g" + std::to_string(generation);
}

Agent::Agent(LaunchContext context, std::string jobs_dir)
    : context_(std::move(context)), jobs_dir_(std::move(jobs_dir)) {}

Effects Agent::Handle(const Event& event) {
  Effects effects;
  std::visit([&](const auto& e) { On(e, &effects); }, event);
  return effects;
}

HostedJob* Agent::Find(const JobId& job) {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second;
}

HostedJob& Agent::At(const JobId& job) {
  return jobs_.try_emplace(job, context_, RanksDirectory(context_, JobDir(job))).first->second;
}

const Prepare* Agent::FindPrepare(const JobId& job) const {
  const auto it = jobs_.find(job);
  return it == jobs_.end() ? nullptr : &it->second.prepare();
}

void Agent::On(const JobFound& found, Effects* effects) {
  At(found.prepare.job).On(found, effects);
}

void Agent::On(const Prepare& prepare, Effects* effects) { At(prepare.job).On(prepare, effects); }

// A job that is not here is handled as one without a generation, which refuses both.
void Agent::On(const Launch& launch, Effects* effects) {
  if (HostedJob* job = Find(launch.job)) return job->On(launch, effects);
  HostedJob(context_, {}).On(launch, effects);
}

void Agent::On(const InjectFault& fault, Effects* effects) {
  if (HostedJob* job = Find(fault.job)) return job->On(fault, effects);
  HostedJob(context_, {}).On(fault, effects);
}

void Agent::On(const Abort& abort, Effects* effects) {
  if (HostedJob* job = Find(abort.job)) return job->On(abort, effects);
  effects->push_back(SendToCoordinator{Quiesced{.job = abort.job, .generation = abort.generation}});
}

void Agent::On(const Release& release, Effects* effects) {
  if (HostedJob* job = Find(release.job)) return job->On(release, effects);
  effects->push_back(SendToCoordinator{Released{release.job}});
}

void Agent::On(const LaunchStaged& staged, Effects* effects) {
  if (HostedJob* job = Find(staged.launch.job)) job->On(staged, effects);
}

void Agent::On(const Forgotten& forgotten, Effects* effects) {
  std::optional<Prepare> next;
  if (HostedJob* job = Find(forgotten.job)) next = job->Ended(effects);
  jobs_.erase(forgotten.job);
  effects->push_back(SendToCoordinator{Released{forgotten.job}});
  if (next) On(*next, effects);
}

std::vector<HostedGeneration> Agent::Hosted() const {
  std::vector<HostedGeneration> hosted;
  for (const auto& [id, job] : jobs_) hosted.push_back(job.Hosted());
  return hosted;
}

std::vector<GpuUse> Agent::GpusInUse() const {
  std::vector<GpuUse> uses;
  for (const auto& [id, job] : jobs_)
    for (std::string& device : job.GpusInUse()) uses.push_back({id, std::move(device)});
  return uses;
}

bool Agent::AllSettled() const {
  return std::ranges::all_of(jobs_, [](const auto& entry) { return entry.second.Settled(); });
}

}  // namespace muster::worker
