// PilotFiles: what the coordinator keeps of its pilot jobs on the nodes' file system, and its calls
// of Slurm and of the authority for them.
//
//   POOL/alive                 changes every few seconds while a coordinator runs
//   POOL/KEY/                  one pilot; when it is gone, the pilot ends itself
//     job.yaml                 what was asked for, and why; the other files of a submission
//                              (common/slurm/submission.h) beside it
//     tokens/NODE              the join token of one of its nodes, 0600; once and for ten minutes
//     end.json                 when and why it was cancelled, and how it ended
//     slurm-JOB.out, worker.NODE.log
//
// Every step can be repeated after a crash: a pilot is submitted once, by its key. One whose submit
// was interrupted is found by the comment of its Slurm job; if it has no owner, it ends itself.
//
// Everything blocks: owned by PilotRunner and called on its pool's one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/slurm_commands.h"
#include "coordinator/pilots/pilot_pool.h"

namespace muster {

class PilotFiles {
 public:
  // `security_dir`: of the cluster's authority.
  PilotFiles(slurm::SlurmCommands commands, std::string user, std::string security_dir)
      : commands_(std::move(commands)),
        user_(std::move(user)),
        security_dir_(std::move(security_dir)) {}

  // Makes the directory of all pilots (0700); before all that follows.
  Status Open(const std::string& pool);
  const std::string& pool() const { return pool_; }

  // What earlier coordinators left, including ended ones. Directories from which nothing can have
  // been submitted are removed.
  Result<std::vector<PilotRecord>> Load() const;

  // Submits the Slurm job. kUnavailable, kFailedPrecondition and the like: there is none.
  // kDeadlineExceeded: there may be one.
  Result<std::uint64_t> Submit(const PilotRecord& record, const PoolConfig& config,
                               const std::string& coordinator) const;
  // Records it first, so that the node stays bad for a coordinator that restarts.
  Status Cancel(const PilotRecord& record) const;
  Status CancelStray(std::uint64_t slurm_job_id) const { return commands_.Cancel(slurm_job_id); }
  Result<std::vector<slurm::JobInfo>> List() const;

  // Admits one node, by its name.
  Status GiveToken(const std::string& key, const std::string& node, const std::string& join_address,
                   std::int64_t now_ms) const;
  // The pilot is over: certificates that its nodes received since its submission are refused from
  // now on. Its directory is kept for people; the oldest of many are removed.
  Status End(const PilotRecord& record, const std::vector<std::string>& nodes,
             std::int64_t now_ms) const;

  // Whether its batch script has begun.
  bool HasStarted(const std::string& key) const;
  Status Renew(std::int64_t now_ms) const;

 private:
  std::string Dir(const std::string& key) const { return pool_ + "/" + key; }
  Status WriteEnd(const PilotRecord& record) const;
  Status RevokeSince(const std::string& node, const PilotRecord& record, std::int64_t now_ms) const;
  void RemoveOldest() const;

  const slurm::SlurmCommands commands_;
  const std::string user_;
  const std::string security_dir_;
  std::string pool_;
};

}  // namespace muster
