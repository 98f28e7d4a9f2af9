// ProcessTable: the processes of a guardian that have not ended: which waits for an assignment,
// which is still to be ended, which has survived SIGKILL.
//
// Owned by GuardianCore, to whose effects it adds; it starts and ends processes, and leaves it to
// the core what their ends mean. Pure; any one thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "worker/guardian/guardian_effects.h"
#include "worker/guardian/protocol.h"

namespace muster::guardian {

// How often Tick is needed while processes are left that survived SIGKILL.
inline constexpr std::chrono::seconds kUnkillableTick{1};

struct Process {
  enum class State { kStandby, kAssigned, kParked, kKept };
  State state = State::kStandby;
  std::int64_t pid = 0;
  bool control = false;
  bool ready = false;         // a standby that has loaded everything
  bool being_killed = false;  // SIGKILL is under way
  Generation generation = 0;  // of its newest assignment
  int rank = 0;
  std::optional<std::string> device;       // CUDA_VISIBLE_DEVICES of its first assignment
  std::vector<std::string> devices;        // whose locks it got with its newest assignment
  std::optional<GuardianLaunch> starting;  // what it is being started for

  bool Waits() const { return state != State::kAssigned && !being_killed; }
  bool Serves(Generation of) const;
  void Assign(const GuardianLaunch& launch);
};

// Whether the rank's process waits for an assignment, including the first one.
bool TakesAssignments(const GuardianLaunch& launch);

class ProcessTable {
 public:
  bool empty() const { return processes_.empty(); }
  // Null: it has ended.
  Process* Find(ProcessId id);
  void Remove(ProcessId id) { processes_.erase(id); }

  // The process that suits the rank best; 0: none waits.
  ProcessId FindWaiting(const GuardianLaunch& launch, const std::vector<int>& node_ranks) const;
  ProcessId Start(const GuardianLaunch& launch, EffectList& out);
  void StartStandby(const GuardianLaunch& launch, EffectList& out);

  void Kill(ProcessId id, Process& process, EffectList& out);
  void KillRanks(Generation generation, const std::vector<int>& ranks, EffectList& out);
  void KillAssigned(EffectList& out);
  // Standbys above the number; returns how many are missing.
  int KillStandbysAbove(int number, EffectList& out);
  // Parked processes that no generation will request: all, or those with a device that is none of
  // the given ones. Returns whether there were any.
  bool KillKept(EffectList& out);
  bool KillKeptOutside(const std::vector<std::string>& devices, EffectList& out);
  // All, or with `keep` those that do not wait.
  void KillAll(bool keep, EffectList& out);
  // Requests those with an assignment to park; kills those that cannot.
  void Park(const std::string& reason, EffectList& out);
  // Kills those that wait; with `gently`, SIGTERM to the others.
  void Terminate(bool gently, EffectList& out);
  // The generation of the parked processes has ended.
  void KeepParked();

  // Processes that an end with `keep`, or without it, still has to end.
  bool AnyToEnd(bool keep) const;
  Sweep SweepAllBut(bool keep, bool kill) const;
  GuardianQuiesced Quiesced(Generation newest) const;

  // Processes that survived SIGKILL only occupy their slots. They end late, and the slots are
  // needed then.
  const std::vector<std::int64_t>& unkillable() const { return unkillable_; }
  bool AreUnkillable(const std::vector<std::int64_t>& pids) const;
  // Of these devices, those that may be theirs: no process that waits has them.
  std::vector<std::string> MaybeOfUnkillable(const std::vector<std::string>& devices) const;
  // Whether one is left that may use a device without its lock: all but those that survived SIGKILL
  // and have the locks of their assignment themselves.
  bool NeedLocks() const;
  // Returns whether they are others than before.
  bool SetUnkillable(const std::vector<std::int64_t>& pids, TimePoint now);
  // What is due now. `beside`: of a living generation, whose processes are left alone.
  std::optional<Sweep> LookForUnkillable(TimePoint now, bool beside);
  // What that has found; returns whether they are others than before.
  bool NoteUnkillable(const SweepResult& result, bool beside);

 private:
  template <typename Which>
  bool KillKeptIf(Which which, EffectList& out);

  std::map<ProcessId, Process> processes_;
  ProcessId last_ = 0;
  std::vector<std::int64_t> unkillable_;
  TimePoint look_at_;
};

}  // namespace muster::guardian
