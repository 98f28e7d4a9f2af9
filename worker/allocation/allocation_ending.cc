#include "worker/allocation/allocation_ending.h"

#include <algorithm>
#include <utility>

namespace muster::worker {
namespace {

// Time for the others to learn of it: each asks twice within that.
constexpr Duration kTellLimit = std::chrono::seconds(4);
constexpr Duration kAskAgain = std::chrono::milliseconds(150);
constexpr Duration kReadAgain = std::chrono::milliseconds(500);
constexpr int kRefusals = 3;
// slurmctld may be restarting, or may have to detect first that a node is dead.
constexpr Duration kLimit = std::chrono::minutes(10);

}  // namespace

std::vector<EndingEffect> AllocationEnding::TakeEffects() { return std::exchange(effects_, {}); }

void AllocationEnding::Decide(const Ending& ending, int closer, const std::set<int>& others,
                              TimePoint now) {
  if (ending_) return;
  ending_ = ending;
  closer_ = closer;
  others_ = others;
  decided_ = ask_at_ = now;
  read_at_ = now + kReadAgain;
  if (closes()) {
    phase_ = Phase::kTelling;
    return;
  }
  phase_ = Phase::kWaiting;
  effects_.emplace_back(std::in_place_type<EndPrograms>);
}

void AllocationEnding::Tick(TimePoint now) {
  switch (phase_) {
    case Phase::kNone:
    case Phase::kGone: return;
    case Phase::kTelling:
      if (!AllNotified() && now - decided_ < std::max(kTellLimit, options_.ask_interval * 2))
        return;
      effects_.emplace_back(std::in_place_type<EndPrograms>);
      return Close();
    case Phase::kClosing:
      if (tell_at_ && now >= *tell_at_) Close();
      return;
    case Phase::kWaiting:
      // Not for ever: Slurm ends a job's nodes when its script is over.
      if (now - decided_ > kLimit + kLongestRetry) return Leave(false);
      return WatchCloser(now);
  }
}

bool AllocationEnding::AllNotified() const {
  return std::includes(notified_.begin(), notified_.end(), others_.begin(), others_.end());
}

void AllocationEnding::Close() {
  phase_ = Phase::kClosing;
  tell_at_.reset();
  effects_.emplace_back(std::in_place_type<NotifyScheduler>);
}

void AllocationEnding::OnSchedulerAnswer(Closing result, TimePoint now) {
  if (phase_ != Phase::kClosing) return;
  if (result != Closing::kAgain || now - decided_ >= kLimit)
    return Leave(result == Closing::kLeftOut);
  tell_at_ = now + retries_.Next();
}

// --- supervisors that wait for the closer ---

void AllocationEnding::WatchCloser(TimePoint now) {
  if (!reading_ && (now >= read_at_ || CloserIsGone(now))) {
    reading_ = true;
    read_at_ = now + std::max(kReadAgain, options_.ask_interval);
    effects_.emplace_back(std::in_place_type<ReadNote>);
  }
  if (asking_ || now < ask_at_) return;
  asking_ = true;
  ask_at_ = now + (silent_since_ ? kAskAgain : options_.ask_interval);
  effects_.push_back(AskCloser{closer_});
}

void AllocationEnding::OnAnswer(int index) {
  if (index != closer_) return;
  asking_ = false;
  refusals_ = 0;
  silent_since_.reset();
}

void AllocationEnding::OnSilence(int index, bool refused, TimePoint now) {
  if (index != closer_) return;
  asking_ = false;
  refusals_ = refused ? refusals_ + 1 : 0;
  if (!silent_since_) silent_since_ = now;
  ask_at_ = std::min(ask_at_, now + kAskAgain);
}

bool AllocationEnding::CloserIsGone(TimePoint now) const {
  if (!silent_since_) return false;
  const Duration silent = now - *silent_since_;
  return (refusals_ >= kRefusals && silent >= options_.refusal) || silent >= options_.silence;
}

// A supervisor may be gone because it is done; the note shows that.
void AllocationEnding::OnNote(bool closed, TimePoint now) {
  reading_ = false;
  if (phase_ != Phase::kWaiting) return;
  if (closed) return Leave(false);
  if (CloserIsGone(now)) GoOnWithNext(now);
}

void AllocationEnding::GoOnWithNext(TimePoint now) {
  others_.erase(closer_);
  const bool mine = others_.empty() || options_.index < *others_.begin();
  closer_ = mine ? options_.index : *others_.begin();
  asking_ = false;
  refusals_ = 0;
  silent_since_.reset();
  ask_at_ = now;
  if (mine) Close();
}

void AllocationEnding::Leave(bool left_out) {
  phase_ = Phase::kGone;
  effects_.push_back(Exit{left_out});
}

}  // namespace muster::worker
