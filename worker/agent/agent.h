// Agent: how a worker handles the jobs on its node, as a pure state machine.
//
// Handle takes one event (from the coordinator, a guardian or the pool) and returns the effects to
// carry out; AgentRunner (agent_runner.h) is the edge that does so. Nothing here reads a clock, a
// file or a socket.
//
// For every job it mirrors its guardian's reports about the newest generation; Hosted() is that
// mirror, and a Hello made from it restores all that lost messages would have carried. Stale
// messages of the coordinator are dropped in one place, IsStale; those of the worker's own past in
// the guardian.
//
// Any one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "worker/agent/preflight.h"
#include "worker/agent/rank_environment.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

// A GPU that a rank of the job has, as CUDA_VISIBLE_DEVICES names it.
struct GpuUse {
  JobId job;
  std::string gpu;

  friend bool operator==(const GpuUse&, const GpuUse&) = default;
};

// --- events, beside the coordinator's orders ---

// A job that an earlier worker left on the node. With a living guardian the caller connects to it;
// otherwise the effects prove that nothing is left of it.
struct JobFound {
  Prepare prepare;
  JobSpec spec;
  bool launched = false;
  bool guardian_alive = false;
};
struct PreflightDone {
  JobId job;
  Generation generation = 0;
  PreflightResult result;
};
struct LaunchStaged {
  Launch launch;
  Status status;
};
struct GuardianReported {
  JobId job;
  GuardianEvent event;
};
struct GuardianLost {
  JobId job;
  std::string why;
};
struct ProvedGone {
  JobId job;
  std::vector<RankExited> records;
  std::vector<std::int64_t> unkillable_pids;
};
struct Forgotten {
  JobId job;
};
struct StuckDue {
  JobId job;
};
struct StuckSeen {
  JobId job;
  std::vector<std::int64_t> ended;
};

using Event = std::variant<Prepare, Launch, Abort, Release, Stop, InjectFault, JobFound,
                           PreflightDone, LaunchStaged, GuardianReported, GuardianLost, ProvedGone,
                           Forgotten, StuckDue, StuckSeen>;

// --- effects ---

struct SendToCoordinator {
  WorkerMessage message;
};
struct SendToGuardian {
  JobId job;
  GuardianCommand command;
};
// Answered by GuardianReported(GuardianSynced) or GuardianLost.
struct StartGuardian {
  JobId job;
};
// Answered by PreflightDone.
struct StartPreflight {
  Prepare prepare;
};
// Writes the resume file, and before it the job's record with the ranks that are launched. Answered
// by LaunchStaged.
struct StageLaunch {
  Launch launch;
  Prepare prepare;
};
// Answered by ProvedGone.
struct StartTerminationProof {
  JobId job;
  Generation generation = 0;
};
// Removes the job's directory. Answered by Forgotten.
struct ForgetJob {
  JobId job;
};
// Answered by StuckDue, a few seconds later.
struct ScheduleStuckCheck {
  JobId job;
};
// Which of these, as the last proof found them, have ended? Ends nothing: a guardian may live
// beside them. Answered by StuckSeen.
struct CheckStuck {
  JobId job;
  std::vector<std::int64_t> pids;
};
struct LogNote {
  std::string text;
};

using Effect =
    std::variant<SendToCoordinator, SendToGuardian, StartGuardian, StartPreflight, StageLaunch,
                 StartTerminationProof, ForgetJob, ScheduleStuckCheck, CheckStuck, LogNote>;
using Effects = std::vector<Effect>;

class Agent {
 public:
  // `jobs_dir` is where the jobs' directories are.
  Agent(LaunchContext context, std::string jobs_dir);

  Effects Handle(const Event& event);

  std::vector<HostedGeneration> Hosted() const;
  // The GPUs of the ranks that run now.
  std::vector<GpuUse> GpusInUse() const;
  // No guardian is connected without its state received, and none is being proved gone for the
  // first time.
  bool AllSettled() const;
  std::string JobDir(const JobId& job) const { return jobs_dir_ + "/" + job.value; }
  // The newest Prepare of a job; null if the job is not here.
  const Prepare* FindPrepare(const JobId& job) const;

 private:
  enum class Link {
    kAbsent,    // no guardian
    kStarting,  // started or found, its state not yet received
    kReady,
    kProving,  // ended; its processes are being proved gone
  };

  // A Prepare that is not yet answered.
  struct Preparing {
    bool preflight_done = false;
    bool guardian_asked = false;
    int first_ranks = 0;  // ranks for which no process of an earlier generation waits
    std::optional<GuardianPrepared> guardian;
    std::optional<Launch> launch;  // came with the Prepare; taken up once prepared
  };

  struct Job {
    Prepare prepare;
    std::optional<JobSpec> spec;
    std::optional<CudaStack> cuda;  // found by the preflight
    std::optional<Preparing> preparing;
    Link link = Link::kAbsent;
    std::vector<GuardianCommand> queued;  // for a guardian that is not ready
    HostedGeneration hosted;
    std::optional<HostedGeneration> replay;  // between the guardian's Hello and Synced
    std::optional<Generation> staging;       // the launch whose files are being written
    bool releasing = false;
    // Processes of dead guardians that do not end, as last seen: no living guardian knows of them,
    // and they hold their slots. While there are any, they are checked repeatedly.
    std::vector<std::int64_t> stuck;
    std::vector<std::int64_t> unkillable;  // as the living guardian reported
    bool terminated = false;      // except for these, nothing of the newest generation runs
    std::optional<Prepare> next;  // came while it was being released; taken up after that
    Generation aborted = 0;  // by the newest abort that came in the meantime; answered after that
    // The last command to the guardian about the newest generation; sent again after its connection
    // broke, because a command may have been lost with it. Repeats have no effect.
    std::optional<GuardianStandby> standby;
    std::vector<GuardianLaunch> launches;
    std::optional<GuardianStop> stop;
    std::optional<GuardianAbort> abort;

    // All that has survived SIGKILL.
    std::vector<std::int64_t> Survivors() const {
      std::vector<std::int64_t> pids = unkillable;
      pids.insert(pids.end(), stuck.begin(), stuck.end());
      return pids;
    }
  };

  Effects On(const Prepare& prepare);
  Effects On(const Launch& launch);
  Effects On(const Abort& abort);
  Effects On(const Release& release);
  Effects On(const Stop& stop);
  // Answered by FaultDone; a fault that the guardian can no longer cause is logged.
  Effects On(const InjectFault& fault);
  Effects On(const JobFound& found);
  Effects On(const PreflightDone& done);
  Effects On(const LaunchStaged& staged);
  Effects On(const GuardianReported& reported);
  Effects On(const GuardianLost& lost);
  Effects On(const ProvedGone& proof);
  Effects On(const Forgotten& forgotten);
  Effects On(const StuckDue& due);
  Effects On(const StuckSeen& seen);

  bool IsStale(const Job& job, Generation generation) const;
  Job* Find(const JobId& job);
  void Order(Job& job, GuardianCommand command, Effects* effects);
  void AskGuardianToPrepare(Job& job, Effects* effects);
  void FinishPreparing(Job& job, Effects* effects);
  // Whether the newest request was a generation's end: an older abort may have kept processes.
  static bool AnswersAbort(const Job& job, bool quiesced, bool keeps_any);
  void FailPreparing(Job& job, const std::string& error, bool retryable, Effects* effects);
  void ReportCpuBinding(const Job& job, Effects* effects) const;
  void EnsureGuardian(Job& job, Effects* effects);
  // The end of a release, except for processes that do not end: the job stays until they do,
  // because its directory and its place in a Hello are the only record of them.
  void Forget(Job& job, Effects* effects);
  // To the coordinator: what is left of the job after some of it has ended late.
  void ReportStuck(Job& job, Effects* effects);
  static bool WaitsForStuck(const Job& job) {
    return job.releasing && job.link == Link::kAbsent && !job.stuck.empty();
  }
  void ReportAgain(Job& job, Effects* effects);

  void Apply(Job& job, const GuardianHello& hello, Effects* effects);
  void Apply(Job& job, const GuardianPrepared& prepared, Effects* effects);
  void Apply(Job& job, const GuardianRankStarted& started, Effects* effects);
  void Apply(Job& job, const GuardianRankExited& exited, Effects* effects);
  void Apply(Job& job, const GuardianReport& report, Effects* effects);
  void Apply(Job& job, const GuardianQuiesced& quiesced, Effects* effects);
  void Apply(Job&, const GuardianSegment&, Effects*) {}  // descriptors are the edge's
  void Apply(Job&, const GuardianAlive&, Effects*) {}    // that it lives, too
  void Apply(Job& job, const GuardianSynced& synced, Effects* effects);
  void Apply(Job& job, const GuardianRefused& refused, Effects* effects);

  const LaunchContext context_;
  const std::string jobs_dir_;
  std::map<JobId, Job> jobs_;
};

// For the log and for messages: "job 7f3a9c1e2b g2".
std::string DescribeGeneration(const JobId& job, Generation generation);

}  // namespace muster::worker
