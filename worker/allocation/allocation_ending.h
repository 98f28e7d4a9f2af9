// AllocationEnding: from the decision how an allocation ends to the point where this supervisor may
// exit: which supervisor informs the scheduler, when, and which one does if the first cannot. Pure.
//
// The supervisor that decided (the leader, or the lowest node left if no node can lead) is the
// closer. It informs the others, then the scheduler, with retries, and notes in the shared
// directory that it is done. The others end their programs and wait for that note: if the closer is
// gone without it, the next lowest one that is left takes its place.
//
// Owned by a Supervisor; its thread. Time is an argument.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <variant>
#include <vector>

#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "worker/allocation/peer_view.h"

namespace muster::worker {

struct AllocationEndingOptions {
  int index = 0;
  Duration ask_interval = std::chrono::milliseconds(500);  // between two questions to the closer
  Duration silence = std::chrono::milliseconds(3000);      // after which it is gone
  Duration refusal = std::chrono::milliseconds(400);       // if its machine refuses
};

// The result of informing the scheduler.
enum class Closing {
  kDone,     // or there was nothing to report
  kAgain,    // it did not answer, or does not know yet
  kLeftOut,  // not for this node to decide: the allocation goes on without it
};

// Effects; each question of AskCloser and ReadNote is answered once.
struct EndPrograms {};
struct AskCloser {
  int index = -1;
};
struct ReadNote {};  // whether it is noted that the scheduler was informed
struct NotifyScheduler {};
struct Exit {
  bool left_out = false;
};
using EndingEffect = std::variant<EndPrograms, AskCloser, ReadNote, NotifyScheduler, Exit>;

class AllocationEnding {
 public:
  explicit AllocationEnding(AllocationEndingOptions options) : options_(options) {}

  // `others`: the live supervisors as far as this one knows, without itself. The first decision
  // counts.
  void Decide(const Ending& ending, int closer, const std::set<int>& others, TimePoint now);
  // It has asked since, and so knows the decision.
  void OnAsked(int index) { notified_.insert(index); }
  void OnAnswer(int index);
  void OnSilence(int index, bool refused, TimePoint now);
  void OnNote(bool closed, TimePoint now);
  void OnSchedulerAnswer(Closing result, TimePoint now);
  void Tick(TimePoint now);

  std::vector<EndingEffect> TakeEffects();
  const std::optional<Ending>& ending() const { return ending_; }
  bool closes() const { return ending_ && closer_ == options_.index; }

 private:
  enum class Phase { kNone, kTelling, kClosing, kWaiting, kGone };

  bool AllNotified() const;
  void Close();
  void WatchCloser(TimePoint now);
  bool CloserIsGone(TimePoint now) const;
  void GoOnWithNext(TimePoint now);
  void Leave(bool left_out);

  // Between tries to inform the scheduler.
  static constexpr Duration kFirstRetry = std::chrono::seconds(1);
  static constexpr Duration kLongestRetry = std::chrono::seconds(30);

  const AllocationEndingOptions options_;
  Phase phase_ = Phase::kNone;
  std::optional<Ending> ending_;
  int closer_ = -1;
  std::set<int> others_;
  std::set<int> notified_;
  TimePoint decided_{};
  std::optional<TimePoint> tell_at_;  // the scheduler; empty: a call is under way
  Backoff retries_{kFirstRetry, kLongestRetry};
  bool asking_ = false;
  bool reading_ = false;
  TimePoint ask_at_{};
  TimePoint read_at_{};
  int refusals_ = 0;
  std::optional<TimePoint> silent_since_;
  std::vector<EndingEffect> effects_;
};

}  // namespace muster::worker
