// Gang: the processes of one generation on this node.
//
// Made when a generation is prepared and destroyed once it is proved gone. Starts ranks, notices
// their ends (pidfds), carries their control messages, and ends the whole group: SIGTERM, a grace,
// SIGKILL by group, by cgroup and by descent, until the kernel says that this process has no child
// left. That is the proof: the guardian is a subreaper, so any process that descends from a rank is
// its child or has an ancestor that is.
//
// Owned by the guardian's single thread. Nothing here blocks but exec.
#pragma once

#include <poll.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/control_pipe/packet_socket.h"
#include "worker/guardian/protocol.h"
#include "worker/process/cgroup.h"

namespace muster {

// From SIGKILL until processes that are still there are called unkillable.
inline constexpr std::chrono::seconds kKillBudget{5};

class Gang {
 public:
  struct Member {
    pid_t pid = 0;
    UniqueFd pidfd;        // closed once the process was reaped
    PacketSocket control;  // not valid for a process without
    UniqueFd page;
    std::string log_path;
    std::optional<GuardianRankExited> exited;
    TimePoint exited_at;
  };

  // What a rank sent, or that it ended.
  struct Message {
    int rank = 0;
    std::string data;
  };

  Gang(Generation generation, std::unique_ptr<Cgroup> cgroup);

  Generation generation() const { return generation_; }
  const std::map<int, Member>& members() const { return members_; }
  int master_port() const { return master_port_; }

  Status BindMaster(const GuardianPrepare& prepare);

  // Starts a process. A program that cannot be started counts as exited with code 127, the reason
  // in its log tail; the caller learns it from TakeExits like any other end.
  void Launch(const GuardianLaunch& launch, TimePoint now);
  bool HasLaunched(int rank) const { return members_.contains(rank); }

  // Adds what Poll has to wait for.
  void AddPollEntries(std::vector<pollfd>* entries) const;
  // Control messages that are there; ended ranks' sockets are read to their end.
  std::vector<Message> ReceiveMessages();
  // Reaps every ended child, adopted ones included, and returns the ranks that ended.
  std::vector<int> Reap(TimePoint now);

  // SIGKILL to every rank that runs, with `why` as the last line of their log tails. For when what
  // they cannot go on without has ended.
  void KillRanks(const std::string& why);

  // Begins to end everything; a second call can only shorten the grace.
  void BeginEnd(Duration grace, TimePoint now);
  bool ending() const { return kill_at_.has_value(); }
  // Goes on ending. True when nothing is left or the budget is spent; then `unkillable` says what
  // is left, and BeginEnd may try once more.
  bool TickEnd(TimePoint now, std::vector<std::int64_t>* unkillable);

 private:
  Result<pid_t> Spawn(const GuardianLaunch& launch, Member* member);
  void MarkExited(int rank, const ProcessExit& exit, TimePoint now);
  void SignalGroups(int signal);
  void KillDescendants();

  const Generation generation_;
  std::unique_ptr<Cgroup> cgroup_;
  MasterSocket master_ = MasterSocket::kNone;
  UniqueFd listen_fd_;
  int master_port_ = 0;
  std::map<int, Member> members_;
  std::string kill_reason_;
  std::optional<TimePoint> kill_at_;
  std::optional<TimePoint> give_up_at_;  // set with the first SIGKILL
};

}  // namespace muster
