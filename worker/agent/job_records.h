// What a worker keeps on disk about a job, DIR/nodes/NAME/jobs/JOB, so that a restarted worker can
// take over:
//
//   spec.yaml            the job file, read by the trainer too
//   prepare.json         the newest Prepare without the job file
//   container.json       what the ranks' container is made of; there once it was entered
//   resume-gN.json       checkpoints to resume from; there once generation N was launched
//   guardian.json, guardian.sock, guardian.log, exits/     the guardian's (worker/guardian)
//   errors/              TORCHELASTIC_ERROR_FILE of each rank
//
// Where jobs run as their owners, what ranks and guardian use lies in a directory of the owner's
// (RanksDirectory), and there is nothing in it that the worker relies on.
//
// Blocks; free functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/proc_reader.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "common/wire/messages.h"

namespace muster::worker {

Status WriteJobRecord(const std::string& job_dir, const Prepare& prepare);
// Its part that ranks read: spec.yaml.
Status WriteSpec(const std::string& dir, const Prepare& prepare);
Status WriteResumeFile(const Launch& launch, const std::string& dir);

// One job as the directory shows it.
struct JobRecord {
  Prepare prepare;
  JobSpec spec;
  bool launched = false;        // generation prepare.generation was launched
  bool guardian_alive = false;  // its record is locked
  Generation guardian_generation = 0;
};

Result<JobRecord> ReadJobRecord(const std::string& job_dir, const std::string& ranks_dir);

// Names of the jobs below a node's jobs directory.
std::vector<std::string> ListJobs(const std::string& jobs_dir);

// The JSON array that MUSTER_RESUME_FILE names.
std::string ResumeJson(const JobId& job, const std::vector<CheckpointInfo>& checkpoints);

// The guardian that its record names, whether it lives or not; empty if there is none.
std::optional<ProcessId> GuardianOf(const std::string& ranks_dir);

// SIGKILL to the job's guardian, whose ranks end with it. Fails if none lives.
Status KillGuardian(const std::string& ranks_dir);

struct TerminationProof {
  std::vector<RankExited> exited;       // from the exit records of the generation; also ranks not
                                        // launched when the guardian had to end
  std::vector<ProcessInfo> unkillable;  // empty: no process of the job is left on the node
  bool stopped = false;                 // the guardian had been ordered to end
};

std::vector<std::int64_t> PidsOf(const std::vector<ProcessInfo>& processes);

// Which of them have ended since: their pid is unused, a zombie's, or of a process that started at
// another time.
std::vector<std::int64_t> EndedOf(const std::vector<ProcessInfo>& processes);

// Ends what a dead guardian may have left, by its cgroup and by the environment that marks this
// job's processes on this node, until nothing is found or a few seconds have passed.
TerminationProof ProveTerminated(const std::string& ranks_dir, const JobId& job,
                                 Generation generation);

// Where the guardian was ordered to end: adds the ranks of the job's record that are not in
// `exited`, since they were not launched. ProveTerminated has added them if the record is in that
// directory.
void AddStoppedRanks(const std::string& job_dir, Generation generation,
                     std::vector<RankExited>* exited);

}  // namespace muster::worker
