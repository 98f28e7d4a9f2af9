// SharedDir: what the supervisors of an allocation leave for each other, and for people, in a
// directory on a shared file system:
//
//   DIR/nodes/RUN-INDEX.json   {"index", "node", "address", "pid"} of each supervisor
//   DIR/leader.json            {"run", "epoch", "index", "node", "address", "grpc", "http"}
//   DIR/outcome.json           {"run", "exit_code", "action", "reason", "exclude"}
//   DIR/journal/, DIR/logs/, DIR/security-RUN/
//
// RUN is SLURM_RESTART_COUNT; what an earlier run left is not read. Each file is replaced as one
// step. An NFS client may believe for half a minute that a file is not there; touching the
// directory by a file of one's own ends that, so that whoever waits writes its record again now and
// then (Refresh).
//
// Blocks; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

class SharedDir {
 public:
  SharedDir(std::string dir, int run) : dir_(std::move(dir)), run_(run) {}

  // Makes the directories; only this user may look into them.
  Status Make() const;

  Status WriteMember(const Member& member) const;
  // Of this run. Records that cannot be read are left out.
  std::vector<Member> ReadMembers() const;

  Status WriteLeadership(const Leadership& leadership) const;
  std::optional<Leadership> ReadLeadership() const;

  // `action` is "done", "requeue" (whoever reads it may) or "requeued" (it was asked for).
  Status WriteEnding(const Ending& ending, const std::string& action) const;
  std::optional<Ending> ReadEnding() const;

  const std::string& dir() const { return dir_; }
  std::string Journal() const { return dir_ + "/journal"; }
  std::string Security() const { return dir_ + "/security-" + std::to_string(run_); }
  std::string Logs() const { return dir_ + "/logs"; }

 private:
  std::string NodesDir() const { return dir_ + "/nodes"; }
  std::string LeaderFile() const { return dir_ + "/leader.json"; }
  std::string OutcomeFile() const { return dir_ + "/outcome.json"; }

  const std::string dir_;
  const int run_;
};

}  // namespace muster::worker
