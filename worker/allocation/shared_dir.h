// SharedDir: the records that the supervisors of an allocation leave for each other, and for
// people, in a directory on a shared file system:
//
// DIR/owner.json             the step that owns it (shared_owner.h)
//   DIR/nodes/RUN-INDEX.json   {"step", "index", "node", "address", "pid"} of each supervisor
//   DIR/leader.json            {"step", "run", "epoch", "index", "node", "address", "grpc", "http",
//                               "keys", "beat"}; touched once a second, which changes "beat"
//   DIR/outcome.json           {"step", "run", "exit_code", "action", "reason", "exclude",
//                               "closed"}
//   DIR/progress.json          {"life", "run", "step", "checkpoint", "in_vain"} at the last run's
//   end DIR/journal[-LIFE]/, DIR/logs/, DIR/security-RUN[-LIFE]/
//
// RUN is SLURM_RESTART_COUNT; records of another step are not read. Each file is replaced as one
// step. An NFS client may cache for half a minute that a file does not exist; creating a file in
// the directory ends that, so a supervisor that waits writes its record again from time to time
// (Refresh).
//
// Blocks; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/job_monitor.h"
#include "worker/allocation/peer_view.h"
#include "worker/allocation/shared_owner.h"

namespace muster::worker {

struct LeaderRecord {
  Leadership leadership;
  std::uint64_t heartbeat = 0;
};

struct Outcome {
  Ending ending;
  bool closed = false;  // the scheduler was informed as necessary
  // The batch script must do the rest, because no supervisor can.
  bool left_to_script = false;
  bool requeued = false;  // the scheduler has accepted it
};

class SharedDir {
 public:
  SharedDir(std::string dir, SharedOwner self) : dir_(std::move(dir)), self_(std::move(self)) {}

  // Makes the directories; only this user may look into them.
  Status Make() const;
  // Before anything else is read or written.
  Status Claim();
  // Another step owns it now, and this supervisor is outdated.
  bool IsSuperseded() const;

  Status WriteMember(const Member& member) const;
  // Of this step. Records that cannot be read are left out.
  std::vector<Member> ReadMembers() const;

  // kFailedPrecondition, as for an outcome: another step has the directory, whose record stays.
  Status WriteLeadership(const LeaderRecord& record) const;
  std::optional<LeaderRecord> ReadLeadership() const;

  // Its "action" is "done"; or, while work is left, "requeue", until the scheduler is informed;
  // "requeued" if it has accepted that, and "left" if it ends the job itself or never will.
  Status WriteOutcome(const Outcome& outcome) const;
  std::optional<Outcome> ReadOutcome() const;

  // The runs before this one, which continue from one journal; unknown if there is no record of
  // them. It is written at this run's end, before the outcome.
  RunProgress ReadProgress() const;
  Status WriteProgress(const RunProgress& progress) const;

  // Keys of runs that ended without removing them.
  void RemoveOldKeys() const;

  const std::string& dir() const { return dir_; }
  std::string Journal() const {
    return dir_ + "/journal" + (self_.life > 1 ? "-" + std::to_string(self_.life) : "");
  }
  // `muster` finds it by "keys".
  std::string Security() const {
    return dir_ + "/security-" + std::to_string(self_.run) +
           (self_.life > 1 ? "-" + std::to_string(self_.life) : "");
  }
  std::string Logs() const { return dir_ + "/logs"; }

 private:
  bool IsOwn(const nlohmann::json& object) const;
  Status CheckOwned() const;
  std::string NodesDir() const { return dir_ + "/nodes"; }
  std::string LeaderFile() const { return dir_ + "/leader.json"; }
  std::string ProgressFile() const { return dir_ + "/progress.json"; }
  std::string OutcomeFile() const { return dir_ + "/outcome.json"; }

  const std::string dir_;
  SharedOwner self_;  // const after Claim
};

}  // namespace muster::worker
