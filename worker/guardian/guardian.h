// Guardian: owns the processes of one job on one node, across generations.
//
// A poll loop on one thread, started by the worker and detached from it. It speaks to its worker
// (worker_link.h) and to its ranks (gang.h), decides nothing but the order of things, and never
// waits for disk or network. It is a child subreaper, so nothing that descends from a rank escapes
// it, and its ranks die with it (parent-death signal). On SIGTERM or SIGINT it ends its ranks and
// exits.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "worker/guardian/gang.h"
#include "worker/guardian/protocol.h"
#include "worker/guardian/report_log.h"
#include "worker/guardian/worker_link.h"
#include "worker/process/record_file.h"

namespace muster {

struct GuardianOptions {
  std::string directory;  // DIR/nodes/NAME/jobs/JOB
  std::string job;
  int worker_fd = -1;  // a connection that the worker handed over; -1: none
};

class Guardian {
 public:
  // Takes the record's lock (kAlreadyExists: another guardian has this job) and the signals.
  static Result<std::unique_ptr<Guardian>> Start(const GuardianOptions& options);

  // Until released or told to end; the process's exit code.
  int Run();

 private:
  Guardian(GuardianOptions options, LockedRecord record, WorkerLink link, UniqueFd signals);

  void Wait();
  void HandleSignals();
  void HandleRanks();
  void Handle(const GuardianPrepare& prepare);
  void Handle(const GuardianLaunch& launch);
  void Handle(const GuardianAbort& abort);
  void Handle(const GuardianRelease&);
  void Handle(const GuardianStandby&) {}
  void Handle(const GuardianStop&) {}
  void Handle(const GuardianFault&) {}
  void Handle(const GuardianHold&) {}

  // The one place where generations are fenced: a command of an older generation than the newest
  // seen is refused, a newer one becomes the newest.
  bool Admit(Generation generation);
  void Refuse(Generation generation, const std::string& why);

  void BeginEnd(Duration grace);
  void ContinueEnd();
  void FinishEnd(std::vector<std::int64_t> unkillable);
  void PrepareNow(const GuardianPrepare& prepare);
  void ReportExit(int rank);
  GuardianRankExited ExitedNow(const Gang::Member& member) const;
  void Replay();
  void WriteRecord();

  const GuardianOptions options_;
  LockedRecord record_;
  WorkerLink link_;
  UniqueFd signals_;
  Generation newest_ = 0;
  std::optional<TimePoint> stopped_at_;  // told by a signal to end
  std::unique_ptr<Gang> gang_;           // of the newest generation that was prepared
  std::string cgroup_path_;
  bool gang_ended_ = false;  // nothing of gang_ is left, or only what cannot be killed
  std::vector<std::int64_t> unkillable_;
  ReportLog reports_;
  std::optional<GuardianPrepare> pending_prepare_;  // waits for the older generation's end
  bool abort_asked_ = false;
  bool leaving_ = false;
  bool done_ = false;
};

}  // namespace muster
