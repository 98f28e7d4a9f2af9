// AllocationAccess: the way of a user on a login node to the coordinator inside a job's allocation.
//
// The supervisors' shared directory belongs to the user: its leader.json says where the coordinator
// listens (TLS), and security-RUN/ holds the certificate authority of this run of the job. From it
// the user gets an administrator's certificate for an hour, in a private temporary directory that
// this object removes. After a takeover or a requeue Find has another answer.
//
// Owned by the caller of the coordinator. Blocks for small files; one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "cli/client/cluster_client.h"
#include "cli/slurm/slurm_job.h"
#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/slurm/slurm_commands.h"

namespace muster {

class AllocationAccess {
 public:
  // `state_dir` is the supervisors' shared directory; `user` is the name in the certificate.
  AllocationAccess(std::string state_dir, std::string user);
  ~AllocationAccess();
  AllocationAccess(const AllocationAccess&) = delete;
  AllocationAccess& operator=(const AllocationAccess&) = delete;

  // kUnavailable: no supervisor leads: the job has not started, is between two runs, or has ended.
  Result<RemoteCoordinator> Find();

 private:
  Result<std::string> CredentialsFor(const SlurmLeader& leader);

  const std::string state_dir_;
  const std::string user_;
  std::string temporary_;  // empty: not made yet
  std::optional<int> issued_run_;
  Deadline renew_;
};

// For a client of the coordinator of `job`: a Slurm job as FindSlurmJob takes it, or the path of a
// shared directory (with a '/'), as of a script written by hand. Slurm is asked once, at the first
// connection.
FindRemote CoordinatorOfSlurmJob(slurm::SlurmCommands commands, std::string user, std::string job);

}  // namespace muster
