// GuardianCore: how a guardian handles the processes of its job, as a pure state machine.
//
// Handle takes one event (from the worker, a process, the kernel or the clock) and returns the
// effects to carry out, in order; Guardian (guardian.h) is the edge that does so. Nothing here
// reads a clock, a file or a socket. Every effect with a result is answered by the event that it
// names, before the next event.
//
// There is a distinction between *processes*, which may serve several generations one after
// another, and the *members* of the newest prepared generation, which are reported to the worker. A
// process is a standby, assigned to a rank, parked (out of the collectives, its generation not yet
// ended) or kept (its generation has ended; it belongs to none).
//
// Any one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/result.h"
#include "worker/guardian/guardian_effects.h"
#include "worker/guardian/protocol.h"
#include "worker/guardian/report_log.h"

namespace muster::guardian {

// From SIGKILL until remaining processes count as unkillable.
inline constexpr std::chrono::seconds kKillBudget{5};
// How often Tick is needed while something is being ended.
inline constexpr std::chrono::milliseconds kEndingTick{5};
// And while processes are left that survived SIGKILL.
inline constexpr std::chrono::seconds kUnkillableTick{1};
// Limit of segments per rank of the node: own and buddy's, of the cut that the newest gang
// continues from and of its training, and frozen weights. Beyond it, segments of gangs that never
// formed are dropped.
inline constexpr std::size_t kSegmentsPerRank = 5;
// A standby that dies is started again this many times per generation.
inline constexpr int kStandbyRetries = 3;

class GuardianCore {
 public:
  // `newest` is what a predecessor has seen: it still fences.
  GuardianCore(std::string job, Generation newest);

  Effects Handle(const Event& event, TimePoint now);

  bool ending() const { return end_.has_value(); }
  bool waits_for_unkillable() const { return !end_ && !unkillable_.empty(); }
  // Nothing would be lost if the guardian ended now.
  bool idle() const { return !gang_ && !end_ && processes_.empty() && segments_.empty(); }
  Generation newest() const { return newest_; }

 private:
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
    std::optional<GuardianLaunch> starting;  // what it is being started for

    bool Waits() const { return state != State::kAssigned && !being_killed; }
  };

  struct Member {
    ProcessId process = 0;
    std::int64_t pid = 0;
    bool first_step = false;
    bool asked_to_stop = false;
    std::optional<GuardianRankExited> exited;
    TimePoint exited_at;
  };

  struct Gang {
    Generation generation = 0;
    MasterSocket master = MasterSocket::kNone;
    int master_port = 0;
    std::string error;  // of the preparation
    std::map<int, Member> members;
    std::vector<int> node_ranks;  // that are to be launched; known with the first launch
    std::string kill_reason;
    bool terminated = false;  // nothing takes part in it any more, except unkillable processes
    ReportLog reports;
    int standby_failures = 0;
  };

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

  struct Segment {
    std::string name;
    ProcessId maker = 0;  // 0: a process of an earlier guardian
    Generation made = 0;  // the newest generation then
    Generation cut = 0;   // the newest one that continues from a state that it holds part of
  };

  Effects On(const WorkerConnected& connected, TimePoint now);
  Effects On(const CommandReceived& received, TimePoint now);
  Effects On(const TerminateRequested&, TimePoint now);
  Effects On(const MasterBound& bound, TimePoint now);
  Effects On(const ProcessStarted& started, TimePoint now);
  Effects On(const ProcessNotStarted& failed, TimePoint now);
  Effects On(const MessageReceived& message, TimePoint now);
  Effects On(const ProcessEnded& ended, TimePoint now);
  Effects On(const Swept& swept, TimePoint now);
  Effects On(const Tick&, TimePoint now);

  void Obey(const GuardianPrepare& prepare, TimePoint now);
  void Obey(const GuardianLaunch& launch, TimePoint now);
  void Obey(const GuardianAbort& abort, TimePoint now);
  void Obey(const GuardianRelease&, TimePoint now);
  void Obey(const GuardianStandby& standby, TimePoint now);
  void Obey(const GuardianStop& stop, TimePoint now);
  void Obey(const GuardianFault& fault, TimePoint now);
  void Obey(const GuardianHold& hold, TimePoint now);
  void Obey(const GuardianPing&, TimePoint) { Send(GuardianAlive{}); }

  // The one place where generations are fenced: a command of an older generation than the newest
  // seen is refused, a newer one becomes the newest.
  bool Admit(Generation generation);
  void Refuse(Generation generation, const std::string& why);
  bool Lives(Generation generation) const;

  void PrepareNow(const GuardianPrepare& prepare);
  void CloseMasterSocket();
  void SendPrepared();

  ProcessId FindWaiting(const GuardianLaunch& launch) const;
  ProcessId Start(const GuardianLaunch& launch);
  void Assign(ProcessId id, const GuardianLaunch& launch);
  void BecomeMember(ProcessId id, const GuardianLaunch& launch);
  // Parked processes that no generation will request.
  void EndParkedProcesses();
  void KeepStandbys();
  bool AllStepped() const;
  bool AllLaunched() const;
  void CountStandbyFailure(const std::string& why);

  // Continues an end that is already under way; a second request can only shorten and widen it.
  void BeginEnd(const End& wanted);
  void FinishEnd(const std::vector<std::int64_t>& unkillable);
  // Processes that survived SIGKILL end late, and their slots are needed then.
  void CheckUnkillable(TimePoint now);
  void UnkillableSwept(const SweepResult& result);
  void UnkillableSeen(const SweepResult& result);
  // It has outlived SIGKILL: it only occupies its slot.
  bool IsUnkillable(std::int64_t pid) const;
  Sweep SweepAllBut(bool keep, bool kill) const;
  // Processes that an end with `keep`, or without it, still has to end.
  bool AnyToEnd(bool keep) const;
  bool Quiet(bool keep) const;
  void Park(const std::string& reason);
  void Terminate(bool gently);
  void Kill(ProcessId id, Process& process);
  void KillRanks(const std::string& why);
  GuardianQuiesced Quiesced() const;

  // Null for a process that serves no rank of the newest generation.
  Member* MemberOf(ProcessId id, const Process& process);
  void ReportExit(int rank, Member& member, const ProcessEnd& end, TimePoint now);
  GuardianRankExited ExitedNow(const Member& member, TimePoint now) const;
  void HoldFrom(ProcessId id, const std::string& name);
  void LetGo(const std::string& name);
  void NoteCut(const std::vector<std::string>& segments);
  std::deque<Segment>::const_iterator LeastUseful() const;

  void Send(GuardianEvent event, ProcessId page_of = 0, std::string segment = {});
  void Note(std::string text) { effects_.push_back(LogNote{std::move(text)}); }
  Effects Take() { return std::exchange(effects_, {}); }

  const std::string job_;
  Generation newest_ = 0;
  ProcessId last_process_ = 0;
  std::map<ProcessId, Process> processes_;  // that have not ended
  std::optional<Gang> gang_;                // of the newest generation that was prepared
  std::optional<End> end_;
  std::optional<NextMaster> next_master_;
  std::vector<std::int64_t> unkillable_;
  TimePoint check_unkillable_at_;
  std::optional<GuardianPrepare> pending_prepare_;  // waits for the older generation's end
  std::optional<GuardianStandby> standby_;
  std::deque<Segment> segments_;  // oldest first
  Generation cut_told_ = 0;       // the newest generation that has reported its cut
  std::optional<TimePoint> stopped_at_;
  bool leaving_ = false;
  Effects effects_;
};

// For the log: "g2: rank 1".
std::string RankName(Generation generation, int rank);

}  // namespace muster::guardian
