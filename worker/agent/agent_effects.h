// Events of Agent beside the coordinator's orders, and its effects for its edge. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"
#include "worker/agent/preflight.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

// --- events ---

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
// Writes the resume file, and before it the job's record with the ranks that are launched. Fetches
// the job's secrets, if it has some, and hands them to the guardian. Answered by LaunchStaged.
struct StageLaunch {
  Launch launch;
  Prepare prepare;
  bool has_secrets = false;
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

// For the log and for messages: "job 7f3a9c1e2b g2".
std::string DescribeGeneration(const JobId& job, Generation generation);

}  // namespace muster::worker
