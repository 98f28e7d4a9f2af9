// A job under Slurm: what Slurm lists, and what the job's supervisors write to their shared
// directory (docs/slurm.md).
//
// Blocks; one thread. The files are read as they are: each is replaced as one step by its writer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/slurm_commands.h"

namespace muster {

// Of leader.json.
struct SlurmLeader {
  int run = 0;
  std::uint64_t epoch = 0;
  std::string node;
  std::string grpc;  // HOST:PORT, mutual TLS
  std::string keys;  // directory below of the run's certificate authority; empty: security-RUN
};

// Of outcome.json.
struct SlurmOutcome {
  int run = 0;
  int exit_code = 0;
  std::string action;  // "done", "requeue", "requeued", "left"
  std::string reason;
};

struct SlurmJob {
  slurm::JobInfo slurm;   // with id 0 where Slurm has forgotten the job
  std::string state_dir;  // empty: not known, as of a hand-written script
  std::optional<SlurmLeader> leader;
  std::optional<SlurmOutcome> outcome;
};

// "succeeded: the job has succeeded", "suspended: ...", "to be requeued: ..."; empty: no outcome.
// Where Slurm has ended a job with work left, Slurm's state goes first: a run that is requeued may
// have been cancelled since.
std::string OutcomeText(const SlurmJob& job);

std::optional<SlurmLeader> ReadLeader(const std::string& state_dir);
std::optional<SlurmOutcome> ReadOutcome(const std::string& state_dir);

// With what its state directory says. `state_dir` is where --state says that it is; empty: there
// where the job's comment says.
SlurmJob WithState(slurm::JobInfo job, const std::string& state_dir);

// By the Slurm job's number ("42", "40_1" for a task of an array), or by name, the newest of this
// user's. kNotFound says what to try; kInvalidArgument for an array as a whole; kUnimplemented
// where Slurm's commands are not installed and no --state is given.
Result<SlurmJob> FindSlurmJob(const slurm::SlurmCommands& commands, const std::string& user,
                              const std::string& job, const std::string& state_dir);

// All of this user's that muster submitted, oldest first.
Result<std::vector<SlurmJob>> ListSlurmJobs(const slurm::SlurmCommands& commands,
                                            const std::string& user);

// Where its supervisors share their files; kFailedPrecondition where only the user can know that.
Result<std::string> StateDirOf(const slurm::SlurmCommands& commands, const std::string& user,
                               const std::string& job);

// How it ended, as an exit code of `muster wait`; nothing while it may still run.
std::optional<int> EndOf(const SlurmJob& job);

// The user of this process, by name, or by number where there is no name.
std::string CurrentUser();

// Slurm's commands as a shell of the user would find them.
slurm::SlurmCommands UserSlurmCommands();

// Help of the flags that select a job.
inline constexpr char kSlurmJobHelp[] =
    "Slurm job ID (40_1 for a task of an array), or job name (newest match)";
inline constexpr char kSlurmStateHelp[] =
    "Directory that the job's supervisors share [default: as submitted]";

}  // namespace muster
