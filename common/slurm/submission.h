// Submission: a job given to Slurm exactly once, however often and from wherever it is said.
//
// Its directory on the shared file system (common/slurm/sbatch_script.h, JobPlaces) is its memory:
//
//   lock             held (flock) while a submit is at work
//   job.yaml         the job as it was resolved: what later edits of the file do not change
//   request.json     what else was asked for: options of sbatch and the like
//   run.sbatch       the script; until it is there, what is above may be said otherwise
//   submission.json  {"key", "name", "slurm_job_id"}, written once Slurm has taken it
//   started          the Slurm job's number, written by the script
//
// When the last two are missing, Slurm is asked for a job of this name and key before anything is
// submitted. So a submit that was killed at any point can be said again. What it cannot know is a
// job that Slurm itself lost: slurmctld stores what it has received only after some seconds.
//
// Blocks; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/slurm/sbatch_script.h"
#include "common/slurm/slurm_commands.h"

namespace muster::slurm {

struct SubmissionPlan {
  std::string name;
  std::string key;
  std::string user;     // whose jobs are looked through
  std::string yaml;     // of job.yaml
  std::string request;  // of request.json
  std::string script;
  JobPlaces places;
  Duration lock_timeout = std::chrono::seconds(10);
};

struct SubmittedJob {
  std::uint64_t slurm_job_id = 0;
  bool existed = false;  // an earlier submit made it
};

// kAlreadyExists: the key was used for another job file or other options. kAborted: another submit
// of this key is at work. kUnavailable: Slurm does not answer, and nothing was submitted.
// kDeadlineExceeded: it may have been; the message says how to say it again.
Result<SubmittedJob> SubmitOnce(const SlurmCommands& commands, const SubmissionPlan& plan);

// The user of this process by its name, as Slurm knows it.
std::string CurrentUser();

}  // namespace muster::slurm
