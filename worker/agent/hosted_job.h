// HostedJob: one job on the node: the generation that the coordinator requested, its guardian, and
// what is left of older ones.
//
// The coordinator's orders become orders to the guardian, whose reports the mirror takes up. What
// a broken connection may have lost is sent again, in both directions. Stale messages of the
// coordinator are dropped in one place, IsStale; those of the worker's own past in the guardian.
//
// Owned by Agent, which gives it the events about the job, and to whose effects it adds. Pure; any
// one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "worker/agent/agent_effects.h"
#include "worker/agent/guardian_mirror.h"
#include "worker/agent/rank_environment.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

class HostedJob {
 public:
  // `context` outlives it; `dir` is that of the job's ranks.
  HostedJob(const LaunchContext& context, std::string dir);
  HostedJob(const HostedJob&) = delete;  // the context belongs to its Agent

  void On(const JobFound& found, Effects* effects);
  void On(const Prepare& prepare, Effects* effects);
  void On(const Launch& launch, Effects* effects);
  void On(const Abort& abort, Effects* effects);
  void On(const Release& release, Effects* effects);
  void On(const Stop& stop, Effects* effects);
  // Answered by FaultDone; a fault that the guardian can no longer cause is logged.
  void On(const InjectFault& fault, Effects* effects);
  void On(const PreflightDone& done, Effects* effects);
  void On(const LaunchStaged& staged, Effects* effects);
  void On(const GuardianReported& reported, Effects* effects);
  void On(const GuardianLost& lost, Effects* effects);
  void On(const ProvedGone& proof, Effects* effects);
  void On(const StuckDue& due, Effects* effects);
  void On(const StuckSeen& seen, Effects* effects);
  // Its directory is gone. Returns the Prepare that came in the meantime.
  std::optional<Prepare> Ended(Effects* effects);

  const Prepare& prepare() const { return prepare_; }
  HostedGeneration Hosted() const;
  // As Agent::AllSettled.
  bool Settled() const;
  // The ids of the devices of the ranks that run now.
  std::vector<std::string> GpusInUse() const;

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

  bool IsStale(Generation generation) const;

  void EnsureGuardian(Effects* effects);
  void StartProof(Effects* effects);
  void Order(GuardianCommand command, Effects* effects);
  // What the guardian may have missed.
  void OrderAgain(Effects* effects);

  void AskGuardianToPrepare(Effects* effects);
  void FinishPreparing(Effects* effects);
  void SendPrepared(Effects* effects) const;
  void FailPreparing(const std::string& error, bool retryable, Effects* effects);

  // What changes the mirror alone.
  template <typename Reported>
  void Apply(const Reported& event, Effects* effects) {
    mirror_.Apply(event, effects);
  }
  void Apply(const GuardianPrepared& prepared, Effects* effects);
  void Apply(const GuardianQuiesced& quiesced, Effects* effects);
  void Apply(const GuardianSynced& synced, Effects* effects);
  void Apply(const GuardianRefused& refused, Effects* effects);
  // Whether such a Quiesced answers the newest abort: one that keeps no process has no answer while
  // processes are kept for an older one.
  bool AnswersAbort(bool quiesced, bool keeps_any) const;

  // The end of a release, except for processes that do not end: the job stays until they do,
  // because its directory and its place in a Hello are the only record of them.
  void Forget(Effects* effects);
  bool WaitsForStuck() const { return releasing_ && link_ == Link::kAbsent && !stuck_.empty(); }
  // To the coordinator: what is left of the job after some of it has ended late.
  void ReportStuck(Effects* effects);
  // All that has survived SIGKILL.
  std::vector<std::int64_t> Survivors() const;

  const LaunchContext& context_;
  const std::string dir_;
  Prepare prepare_;
  std::optional<JobSpec> spec_;
  std::optional<CudaStack> cuda_;  // found by the preflight
  std::optional<Preparing> preparing_;
  Link link_ = Link::kAbsent;
  std::vector<GuardianCommand> queued_;  // for a guardian that is not ready
  GuardianMirror mirror_;
  std::optional<Generation> staging_;  // the launch whose files are being written
  bool releasing_ = false;
  // Processes of dead guardians that do not end, as last seen: no living guardian reports them,
  // and they hold their slots. While there are any, they are checked repeatedly.
  std::vector<std::int64_t> stuck_;
  std::vector<std::int64_t> unkillable_;  // as the living guardian reported
  bool terminated_ = false;               // except for these, nothing of the newest generation runs
  std::optional<Prepare> next_;           // came while it was being released; taken up after that
  Generation aborted_ = 0;  // by the newest abort that came in the meantime; answered after that
  // The last command to the guardian about the newest generation; sent again after its connection
  // broke, because a command may have been lost with it. Repeats have no effect.
  std::optional<GuardianStandby> standby_;
  std::vector<GuardianLaunch> launches_;
  std::optional<GuardianStop> stop_;
  std::optional<GuardianAbort> abort_;
};

}  // namespace muster::worker
