#include "worker/allocation/slurm_scheduler.h"

#include "common/slurm/slurm_commands.h"

namespace muster::worker {
namespace {

// What runs of a requeued job is killed after KillWait, and nodes that are dead take longer.
constexpr Duration kRequeuePatience = std::chrono::seconds(20);

class SlurmScheduler final : public Scheduler {
 public:
  explicit SlurmScheduler(std::uint64_t job) : job_(job), commands_(slurm::CurrentEnvironment()) {}

  Result<AllocationState> Ask() override {
    MUSTER_ASSIGN_OR_RETURN(const slurm::JobDetails job, commands_.Show(job_));
    return AllocationState{.end_unix_seconds = job.end_unix_seconds,
                           .batch_node = job.batch_host,
                           .may_requeue = job.may_requeue,
                           .ending = job.state != "RUNNING" && job.state != "SUSPENDED"};
  }

  Status Requeue(const std::vector<std::string>& exclude) override {
    if (exclude.empty()) return commands_.Requeue(job_);
    return commands_.RequeueWithout(job_, exclude, kRequeuePatience);
  }

  Status Cancel() override { return commands_.Cancel(job_); }

 private:
  const std::uint64_t job_;
  const slurm::SlurmCommands commands_;
};

}  // namespace

std::unique_ptr<Scheduler> MakeSlurmScheduler(const slurm::Allocation& allocation) {
  return std::make_unique<SlurmScheduler>(allocation.job_id);
}

}  // namespace muster::worker
