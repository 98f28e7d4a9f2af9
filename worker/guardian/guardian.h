// Guardian: owns the processes of one job on one node, across generations.
//
// The edge of GuardianCore (guardian_core.h), which decides: a poll loop on one thread, started by
// the worker and detached from it. It communicates with its worker (worker_link.h) and its
// processes (process_host.h), and holds the descriptors of snapshot segments and the locks of the
// job's devices. It never waits for the network, nor for longer than a second for the disk of a log
// (log_files.h) or another guardian's lock (device_locks.h). It is a child subreaper, so no
// descendant of a rank escapes it, and its ranks die with it (parent-death signal). On SIGTERM or
// SIGINT it ends its ranks and exits, except for a SIGTERM that is ignored (ignored_signals.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/locked_record.h"
#include "worker/guardian/guardian_core.h"
#include "worker/guardian/process_host.h"
#include "worker/guardian/worker_link.h"
#include "worker/process/record_file.h"
#include "worker/process/unix_socket.h"

namespace muster {

struct GuardianOptions {
  std::string directory;  // DIR/nodes/NAME/jobs/JOB
  std::string job;
  int worker_fd = -1;   // a connection that the worker handed over; -1: none
  std::string devices;  // where they are locked
  // The worker's user, where it is another than this one: then it may connect, and its group, which
  // is that of the directory, read the record. The directory is DIR/JOB/run in this case.
  std::int64_t worker_uid = kNoOtherUser;
};

class Guardian {
 public:
  // Takes the record's lock (kAlreadyExists: another guardian has this job) and the signals.
  static Result<std::unique_ptr<Guardian>> Start(const GuardianOptions& options);

  // Runs until released or ordered to end; returns the process's exit code.
  int Run();

 private:
  struct Parts {
    LockedRecord record;
    WorkerLink link;
    UniqueFd signals;
    std::unique_ptr<Cgroup> cgroup;
  };
  Guardian(GuardianOptions options, Parts parts, Generation newest);

  void Wait();
  void EndIfCutOff();
  void HandleSignals();
  void HandleProcesses();
  void HandleWorker();

  // Carries out what the core decides.
  void Decide(const guardian::Event& event);
  void Do(const guardian::SendToWorker& effect);
  void Do(const guardian::StartProcess& effect);
  void Do(const guardian::AssignProcess& effect);
  void Do(const guardian::SendToProcess& effect);
  void Do(const guardian::SignalProcess& effect);
  void Do(const guardian::ForgetProcess& effect);
  void Do(const guardian::LimitMemory& effect);
  void Do(const guardian::LockDevices& effect);
  void Do(const guardian::UnlockDevices& effect);
  void Do(const guardian::BindMaster& effect);
  void Do(const guardian::CloseMaster& effect);
  void Do(const guardian::Sweep& effect);
  void Do(const guardian::HoldSegment& effect);
  void Do(const guardian::TakeSecrets&) { host_.TakeSecrets(std::move(incoming_)); }
  void Do(const guardian::ReleaseSegment& effect);
  void Do(const guardian::WriteRecord& effect);
  void Do(const guardian::WriteExitRecord& effect);
  void Do(const guardian::WriteStoppedRecord& effect);
  void Do(const guardian::LogNote& effect);
  void Do(const guardian::Leave& effect);
  int SegmentFd(const std::string& name) const;

  const GuardianOptions options_;
  LockedRecord record_;
  WorkerLink link_;
  UniqueFd signals_;
  const std::string cgroup_path_;
  guardian::ProcessHost host_;
  guardian::GuardianCore core_;
  std::map<std::string, UniqueFd> segments_;
  UniqueFd incoming_;  // came with the message or command under way
  bool done_ = false;
  TimePoint look_for_socket_at_;
  bool cut_off_ = false;  // no worker can connect any more
};

}  // namespace muster
