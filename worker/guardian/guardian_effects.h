// Effects of GuardianCore for its edge, and the edge's reports of processes. Plain values; any
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/process/exit_status.h"
#include "worker/guardian/protocol.h"

namespace muster::guardian {

// Identifies a process from the request to start it until the edge may drop it. 0: none; never
// reused.
using ProcessId = int;

// How a process ended, as the edge sees it.
struct ProcessEnd {
  ProcessExit exit;
  std::vector<std::string> log_tail;
  bool out_of_memory = false;
};

struct SweepResult {
  bool none_left = false;
  std::vector<std::int64_t> left;  // pids, if `kill` was requested
};

// --- events ---

struct WorkerConnected {
  std::int64_t own_pid = 0;
};
struct CommandReceived {
  GuardianCommand command;
};
// A signal ordered the guardian to end.
struct TerminateRequested {};
struct DevicesLocked {
  Status status;
};
struct MasterBound {
  Result<int> port;
};
struct ProcessStarted {
  ProcessId process = 0;
  std::int64_t pid = 0;
};
// The process could not be started, or not be given its assignment.
struct ProcessNotStarted {
  ProcessId process = 0;
  std::string why;
};
struct MessageReceived {
  ProcessId process = 0;
  std::string json;
  bool has_descriptor = false;
};
struct ProcessEnded {
  ProcessId process = 0;
  ProcessEnd end;
};
struct Swept {
  SweepResult result;
};
// Every kEndingTick while ending(), every kUnkillableTick while waits_for_unkillable(), and after
// every other event.
struct Tick {};

using Event =
    std::variant<WorkerConnected, CommandReceived, TerminateRequested, DevicesLocked, MasterBound,
                 ProcessStarted, ProcessNotStarted, MessageReceived, ProcessEnded, Swept, Tick>;

// --- effects ---

// With a process's progress page or a held segment as descriptor, if one is named.
struct SendToWorker {
  GuardianEvent event;
  ProcessId page_of = 0;
  std::string segment;
};
// Answered by ProcessStarted or ProcessNotStarted.
struct StartProcess {
  ProcessId process = 0;
  GuardianLaunch launch;
};
// Like SendToProcess, with the log file, perhaps the listening socket, and the locks of the devices
// as descriptors. A failure is answered by ProcessNotStarted.
struct AssignProcess {
  ProcessId process = 0;
  std::string message;
  std::string log_path;
  bool listen = false;
  std::vector<int> cpus;  // that the process is bound to from now on; empty: those of the guardian
  std::vector<std::string> devices;
};
// Over the control socket, with a held segment as descriptor if one is named. A process that cannot
// receive it goes without.
struct SendToProcess {
  ProcessId process = 0;
  std::string message;
  std::string segment;
};
// To its process group.
struct SignalProcess {
  ProcessId process = 0;
  int signal = 0;
};
// What was kept of an ended process (its progress page) is not needed any more.
struct ForgetProcess {
  ProcessId process = 0;
};
// Of all processes together; 0: not limited.
struct LimitMemory {
  std::uint64_t bytes = 0;
};
// From now on the guardian has the locks of these devices and of no others. It keeps those that it
// has, except for `anew`: those devices are locked by another description, since what survived
// SIGKILL may share the present one. Answered by DevicesLocked; after a failure it has only those
// that it kept.
struct LockDevices {
  std::vector<std::string> devices;
  std::vector<std::string> anew;
};
struct UnlockDevices {};
// Answered by MasterBound.
struct BindMaster {
  MasterSocket kind = MasterSocket::kNone;
  std::string address;
};
struct CloseMaster {};
// Finds every descendant of the guardian that is none of `keep` and does not descend from one of
// them; ends it if `kill` is set. Answered by Swept.
struct Sweep {
  std::vector<ProcessId> keep;
  bool kill = false;
};
// The descriptor that came with the message or command under way.
struct HoldSegment {
  std::string name;
};
struct ReleaseSegment {
  std::string name;
};
// The descriptor that came with the command under way has the secrets of ranks that start later.
struct TakeSecrets {};
struct WriteRecord {
  Generation newest = 0;
};
struct WriteExitRecord {
  GuardianRankExited exited;
};
struct WriteStoppedRecord {
  Generation generation = 0;
};
struct LogNote {
  std::string text;
};
// The guardian's end.
struct Leave {};

using Effect = std::variant<SendToWorker, StartProcess, AssignProcess, SendToProcess, SignalProcess,
                            ForgetProcess, LimitMemory, LockDevices, UnlockDevices, BindMaster,
                            CloseMaster, Sweep, HoldSegment, ReleaseSegment, TakeSecrets,
                            WriteRecord, WriteExitRecord, WriteStoppedRecord, LogNote, Leave>;
using Effects = std::vector<Effect>;

// A message for a rank's control socket (common/control_pipe/trainer_protocol.h).
std::string RankMessage(const nlohmann::json& message);

// Those of one event, in the order in which GuardianCore and its parts add them.
class EffectList {
 public:
  void Add(Effect effect) { effects_.push_back(std::move(effect)); }
  void Send(GuardianEvent event, ProcessId page_of = 0, std::string segment = {}) {
    Add(SendToWorker{std::move(event), page_of, std::move(segment)});
  }
  void Note(std::string text) { Add(LogNote{std::move(text)}); }
  Effects Take() { return std::exchange(effects_, {}); }

 private:
  Effects effects_;
};

}  // namespace muster::guardian
