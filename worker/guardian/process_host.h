// ProcessHost: the processes below a guardian, as the kernel has them.
//
// Carries out GuardianCore's effects on processes and observes the results: starts them with their
// control sockets and progress pages, notices their ends (pidfds), carries messages, and finds and
// ends all their descendants. The guardian is a subreaper, so a descendant of a rank is its child
// or has an ancestor that is: no child means that nothing is left.
//
// Owned by the guardian's main thread. Blocks in exec, and for a second at most while a log is
// opened or read (log_files.h).
#pragma once

#include <poll.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"
#include "worker/guardian/device_locks.h"
#include "worker/guardian/guardian_effects.h"
#include "worker/guardian/log_files.h"
#include "worker/process/cgroup.h"

namespace muster::guardian {

class ProcessHost {
 public:
  struct Ended {
    ProcessId process = 0;
    ProcessEnd end;
  };
  struct Message {
    ProcessId process = 0;
    std::string data;
    UniqueFd descriptor;  // not valid: none
  };

  ProcessHost(std::unique_ptr<Cgroup> cgroup, DeviceLocks locks);

  // Fails, once for each limit, where it is not enforced.
  Status CarryOut(const LimitMemory& limit);
  Status CarryOut(const LockDevices& wanted) { return locks_.Hold(wanted); }
  void UnlockDevices() { locks_.DropAll(); }
  // The port. One master socket at a time.
  Result<int> Bind(const BindMaster& master);
  void CloseMaster() { listen_fd_.reset(); }

  // For processes that start from now on, which leave no core file then.
  void TakeSecrets(UniqueFd secrets);
  Result<pid_t> Start(const StartProcess& start);
  Status Assign(const AssignProcess& assign);
  // `descriptor` -1: none. A process that cannot receive it at once goes without: it is stopped or
  // stuck, and nothing may wait for it.
  Status Send(ProcessId process, const std::string& message, int descriptor);
  void Signal(ProcessId process, int signal);
  SweepResult CarryOut(const Sweep& sweep);
  void Forget(ProcessId process) { processes_.erase(process); }

  // -1: it has none.
  int page(ProcessId process) const;

  // Adds the descriptors that poll must wait for.
  void AddPollEntries(std::vector<pollfd>* entries) const;
  // Reaps every ended child, including adopted ones, and returns the processes among them. Call it
  // before ReceiveMessages, so that all messages of an ended process are there.
  std::vector<Ended> Reap();
  std::vector<Message> ReceiveMessages();

 private:
  struct Process {
    pid_t pid = 0;
    bool ended = false;
    UniqueFd pidfd;        // closed once the process was reaped
    PacketSocket control;  // not valid for a process without
    UniqueFd page;
    std::string log_path;
    std::vector<int> cpus;  // that it is bound to; empty: those of this guardian
  };

  Result<pid_t> Spawn(const GuardianLaunch& launch, Process* process);
  void Keep(Process& process, const std::vector<int>& cpus);
  SweepResult SweepAll(bool kill);
  SweepResult SweepOthers(const std::vector<ProcessId>& keep, bool kill);

  const std::unique_ptr<Cgroup> cgroup_;
  const std::string memory_events_;  // empty: the kernel counts nothing here
  std::int64_t oom_kills_ = 0;       // seen so far
  std::uint64_t memory_limit_ = 0;   // bytes; 0: not limited
  const std::vector<int> own_cpus_;  // that this guardian may use
  LogFiles logs_;
  DeviceLocks locks_;
  UniqueFd listen_fd_;
  UniqueFd secrets_;  // not valid: none
  std::map<ProcessId, Process> processes_;
};

}  // namespace muster::guardian
