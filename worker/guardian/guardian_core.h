// GuardianCore: how a guardian handles the processes of its job, as a pure state machine.
//
// Handle takes one event (from the worker, a process, the kernel or the clock) and returns the
// effects to carry out, in order; Guardian (guardian.h) is the edge that does so. Nothing here
// reads a clock, a file or a socket. Every effect with a result is answered by the event that it
// names, before the next event.
//
// A *process* may serve several generations one after another. The *members* of the newest prepared
// generation are what the worker receives reports about. A process is a standby, assigned to a
// rank, parked (out of the collectives, its generation not yet ended) or kept (its generation has
// ended; it belongs to none).
//
// Any one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "worker/guardian/gang.h"
#include "worker/guardian/guardian_effects.h"
#include "worker/guardian/held_segments.h"
#include "worker/guardian/process_table.h"
#include "worker/guardian/protocol.h"

namespace muster::guardian {

// From SIGKILL until remaining processes count as unkillable.
inline constexpr std::chrono::seconds kKillBudget{5};
// How often Tick is needed while something is being ended.
inline constexpr std::chrono::milliseconds kEndingTick{5};
// A standby that dies is started again this many times per generation.
inline constexpr int kStandbyRetries = 3;

class GuardianCore {
 public:
  // `newest` is what a predecessor has seen: it still fences.
  GuardianCore(std::string job, Generation newest);

  Effects Handle(const Event& event, TimePoint now);

  bool ending() const { return end_.has_value(); }
  bool waits_for_unkillable() const { return !end_ && !processes_.unkillable().empty(); }
  // Nothing would be lost if the guardian ended now.
  bool idle() const {
    return gang_.generation == 0 && !end_ && processes_.empty() && segments_.empty();
  }
  Generation newest() const { return newest_; }

 private:
  // A master's socket that is bound before the generation it is for is known; kNone: none.
  struct NextMaster {
    MasterSocket kind = MasterSocket::kNone;
    std::string bind_address;
    int port = 0;
  };

  struct End {
    TimePoint kill_at;
    bool keep = false;                    // processes that wait for an assignment stay
    bool answer = false;                  // with Quiesced
    NextMaster next_master;               // to be bound then; only with `keep`
    std::optional<TimePoint> give_up_at;  // set with the first SIGKILL
  };

  void On(const WorkerConnected& connected, TimePoint now);
  void On(const CommandReceived& received, TimePoint now);
  void On(const TerminateRequested&, TimePoint now);
  void On(const DevicesLocked& locked, TimePoint now);
  void On(const MasterBound& bound, TimePoint now);
  void On(const ProcessStarted& started, TimePoint now);
  void On(const ProcessNotStarted& failed, TimePoint now);
  void On(const MessageReceived& message, TimePoint now);
  void On(const ProcessEnded& ended, TimePoint now);
  void On(const Swept& swept, TimePoint now);
  void On(const Tick&, TimePoint now);

  void Obey(const GuardianPrepare& prepare, TimePoint now);
  void Obey(const GuardianLaunch& launch, TimePoint now);
  void Obey(const GuardianAbort& abort, TimePoint now);
  void Obey(const GuardianRelease&, TimePoint now);
  void Obey(const GuardianStandby& standby, TimePoint now);
  void Obey(const GuardianStop& stop, TimePoint now);
  void Obey(const GuardianFault& fault, TimePoint now);
  void Obey(const GuardianHold& hold, TimePoint now);
  void Obey(const GuardianPing&, TimePoint) { out_.Send(GuardianAlive{}); }

  // The one place where generations are fenced: a command of an older generation than the newest
  // seen is refused, a newer one becomes the newest.
  bool Admit(Generation generation);
  void Refuse(Generation generation, const std::string& why);
  bool Lives(Generation generation) const;

  // What is pending; ends first what has other devices, which Prepared proves to be free.
  void PrepareNow(TimePoint now);
  void CloseMasterSocket();
  // Where nothing is left that may use a device without its lock. Before anything that frees the
  // slots: another job's guardian may want the locks at once.
  void UnlockUnused();

  // The process, which runs, serves the rank from now on.
  void Assign(ProcessId id, const GuardianLaunch& launch);
  void KeepStandbys();
  GuardianRankExited ExitedNow(const Member& member, TimePoint now) const;
  void ReportExit(int rank, Member& member, const ProcessEnd& end, TimePoint now);

  // Continues an end that is already under way; a second request can only shorten and widen it.
  void BeginEnd(const End& wanted);
  void NoteUnkillable(const SweepResult& result);
  void FinishEnd(const std::vector<std::int64_t>& unkillable, TimePoint now);
  GuardianQuiesced Quiesced() const;

  const std::string job_;
  Generation newest_ = 0;
  ProcessTable processes_;
  HeldSegments segments_;
  Gang gang_{.terminated = true};  // of the newest generation that was prepared; 0: none yet
  std::optional<End> end_;
  std::optional<NextMaster> next_master_;
  std::optional<GuardianPrepare> pending_prepare_;  // waits for what has to end first
  std::optional<GuardianStandby> standby_;
  std::optional<TimePoint> stopped_at_;
  bool leaving_ = false;
  EffectList out_;
};

}  // namespace muster::guardian
