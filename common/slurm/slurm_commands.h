// SlurmCommands: queries and orders to Slurm by its own commands: squeue, scontrol, sinfo, sbatch,
// scancel.
//
// Not by its library, which is of another licence and changes with each release. Every call starts
// one program, with all formats and the time zone (UTC) set, and waits for it under a limit. A
// daemon calls them on its pool and asks every 15 seconds at most; slurmctld serves a whole
// cluster.
//
// Blocks; any thread. kUnimplemented where the commands are not installed, as in most containers;
// kNotFound for jobs that Slurm has forgotten; the rest as in slurm_output.h's CommandFailure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/slurm/allocation.h"
#include "common/slurm/job_ref.h"
#include "common/slurm/slurm_output.h"

namespace muster::slurm {

// Which jobs; what is not set does not matter. Ended ones too, as long as Slurm knows them.
struct JobQuery {
  std::optional<JobRef> id;
  std::string user;
  std::string name;
};

class SlurmCommands {
 public:
  // `environment`: what the commands get beside what is set here; its PATH is where they are.
  explicit SlurmCommands(Environment environment, Duration limit = std::chrono::seconds(20));

  Result<std::vector<JobInfo>> List(const JobQuery& query) const;
  Result<JobDetails> Show(const JobRef& job) const;

  // The new job's id. kDeadlineExceeded: it may have been taken all the same; look it up by name.
  Result<std::uint64_t> Submit(const std::string& script,
                               const std::vector<std::string>& options = {}) const;

  // The same job runs again, from its beginning. What runs of it gets SIGTERM at once.
  Status Requeue(const JobRef& job) const;
  // Nodes that it must not get any more. Slurm takes it of a job that waits only.
  Status Exclude(const JobRef& job, const std::vector<std::string>& nodes) const;
  // Requeue, then Exclude as soon as the job waits, for at most `timeout`: what runs of it has to
  // end first, and dead nodes take their time.
  Status RequeueWithout(const JobRef& job, const std::vector<std::string>& nodes,
                        Duration timeout) const;

  Status Cancel(const JobRef& job) const;
  // "USR2" to the tasks of the job's steps and what they have started, not to its batch script.
  Status Signal(const JobRef& job, const std::string& signal) const;

  Result<Settings> Config() const;
  Result<std::map<std::string, Settings>> Partitions() const;

  // Any command: argv[0] is a name in PATH. What it printed, errors among it, when it ended with 0.
  Result<std::string> Run(const std::vector<std::string>& argv,
                          std::optional<Duration> limit = std::nullopt) const;

 private:
  const Environment environment_;
  const Duration limit_;
};

}  // namespace muster::slurm
