#include "worker/allocation/slurm_scheduler.h"

#include <poll.h>

#include <algorithm>
#include <string>
#include <utility>

#include "common/slurm/hostlist.h"
#include "common/slurm/slurm_commands.h"
#include "common/telemetry/log.h"

namespace muster::worker {
namespace {

// Processes of a requeued job are killed after KillWait, and dead nodes take longer.
constexpr Duration kRequeueTimeout = std::chrono::seconds(20);
// After SlurmdTimeout a lost node is DOWN, and soon after no part of the job any more.
constexpr Duration kAfterDown = std::chrono::seconds(30);
constexpr std::int64_t kDefaultSlurmdTimeout = 300;
constexpr int kLookAgainMs = 1000;

class SlurmScheduler final : public Scheduler {
 public:
  explicit SlurmScheduler(const slurm::Allocation& allocation)
      : job_(allocation.ref()),
        run_(allocation.restart_count),
        end_at_start_(allocation.end_unix_seconds),
        has_components_(allocation.het_size > 0),
        commands_(slurm::CurrentEnvironment()) {}

  Result<AllocationState> Ask() override {
    MUSTER_ASSIGN_OR_RETURN(const slurm::JobDetails job, commands_.Show(job_));
    return AllocationState{.batch_node = job.batch_host,
                           .nodes = NodesOf(job),
                           .run = job.restarts,
                           .may_requeue = job.may_requeue,
                           .ending = IsEnding(job)};
  }

  // In a container without Slurm's commands, its variables from the start are used.
  Result<std::optional<std::int64_t>> EndUnixSeconds() override {
    const auto job = commands_.Show(job_);
    if (job.ok()) return job->end_unix_seconds;
    if (job.status().code() == StatusCode::kUnimplemented && end_at_start_) return end_at_start_;
    return job.status();
  }

  Result<std::int64_t> KillWaitSeconds() override {
    MUSTER_ASSIGN_OR_RETURN(const slurm::Settings config, commands_.Config());
    const auto found = config.find("KillWait");
    const auto seconds =
        found != config.end() ? slurm::ParseSpan(found->second) : std::optional<std::int64_t>();
    if (seconds) return *seconds;
    return FailedPrecondition("scontrol show config does not say how long KillWait is");
  }

  Result<bool> Requeue(const std::vector<std::string>& exclude) override {
    if (exclude.empty()) return Done(commands_.Requeue(job_));
    AwaitDown(exclude);
    // A job that was cancelled or requeued in the meantime must stay so, and excluded nodes must
    // stay excluded.
    MUSTER_ASSIGN_OR_RETURN(const slurm::JobDetails job, commands_.Show(job_));
    if (IsEnding(job) || job.restarts > run_) return false;
    std::vector<std::string> nodes = exclude;
    if (const auto before = slurm::ExpandHostlist(job.excluded); before.ok())
      nodes.insert(nodes.end(), before->begin(), before->end());
    return Done(commands_.RequeueWithout(job_, nodes, kRequeueTimeout));
  }

  Status Cancel() override { return commands_.Cancel(job_); }

 private:
  static Result<bool> Done(const Status& status) {
    if (!status.ok()) return status;
    return true;
  }

  static bool IsEnding(const slurm::JobDetails& job) {
    return job.state != "RUNNING" && job.state != "SUSPENDED";
  }

  // A heterogeneous job's other components have lists of their own, which are not queried.
  std::vector<std::string> NodesOf(const slurm::JobDetails& job) const {
    if (has_components_) return {};
    auto nodes = slurm::ExpandHostlist(job.nodes);
    return nodes.ok() ? *std::move(nodes) : std::vector<std::string>{};
  }

  // Measured with Slurm 22.05: an exclusive job that is requeued while a node of it is lost, and
  // not DOWN yet, stays pending for good (BadConstraints).
  void AwaitDown(const std::vector<std::string>& lost) const {
    const Deadline deadline = Deadline::After(FromSeconds(SlurmdTimeout()) + kAfterDown);
    for (bool told = false; !deadline.Expired(); told = true) {
      const auto job = commands_.Show(job_);
      const bool waits = job.ok() && job->exclusive && job->state == "RUNNING" &&
                         job->restarts == run_ && HasAny(job->nodes, lost);
      if (job.ok() && !waits) return;
      if (!told) {
        Log().info(
            "waiting until Slurm has the lost nodes down, which takes its SlurmdTimeout: an "
            "exclusive job that is requeued before would not be started again");
      }
      (void)::poll(nullptr, 0, kLookAgainMs);
    }
  }

  double SlurmdTimeout() const {
    const auto config = commands_.Config();
    if (!config.ok() || config->count("SlurmdTimeout") == 0) return kDefaultSlurmdTimeout;
    const auto seconds = slurm::ParseSpan(config->at("SlurmdTimeout"));
    return static_cast<double>(seconds.value_or(kDefaultSlurmdTimeout));
  }

  static bool HasAny(const std::string& hostlist, const std::vector<std::string>& nodes) {
    const auto names = slurm::ExpandHostlist(hostlist);
    if (!names.ok()) return false;
    return std::any_of(nodes.begin(), nodes.end(), [&](const std::string& node) {
      return std::find(names->begin(), names->end(), node) != names->end();
    });
  }

  const slurm::JobRef job_;
  const int run_;
  const std::optional<std::int64_t> end_at_start_;
  const bool has_components_;
  const slurm::SlurmCommands commands_;
};

}  // namespace

std::unique_ptr<Scheduler> MakeSlurmScheduler(const slurm::Allocation& allocation) {
  return std::make_unique<SlurmScheduler>(allocation);
}

}  // namespace muster::worker
