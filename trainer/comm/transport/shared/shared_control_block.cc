#include "trainer/comm/transport/shared/shared_control_block.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#include <string>

#include "common/base/check.h"
#include "common/base/round_up.h"

namespace muster {
namespace {

constexpr std::size_t kPageBytes = 4096;
// Peers that run at the same time answer within a few microseconds; a sleep and a wake-up take
// about ten.
constexpr Duration kSpin = std::chrono::microseconds(30);
// Why a peer has given up comes by another way, a little later.
constexpr Duration kNewsTimeout = std::chrono::milliseconds(100);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::uint32_t* Word(std::atomic<std::uint32_t>& futex) {
  static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
                sizeof(futex) == sizeof(std::uint32_t));
  return reinterpret_cast<std::uint32_t*>(&futex);
}

// Sleeps while the futex has that value; wakes early now and then. Not private to the process.
void FutexWait(std::atomic<std::uint32_t>& futex, std::uint32_t value, Deadline deadline) {
  // The steady clock is CLOCK_MONOTONIC, which this operation takes its absolute time by.
  const auto when =
      std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.when().time_since_epoch())
          .count();
  timespec until{};
  until.tv_sec = when / 1'000'000'000;
  until.tv_nsec = when % 1'000'000'000;
  syscall(SYS_futex, Word(futex), FUTEX_WAIT_BITSET, value, &until, nullptr,
          FUTEX_BITSET_MATCH_ANY);
}

void FutexWake(std::atomic<std::uint32_t>& futex) {
  syscall(SYS_futex, Word(futex), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

struct SharedControlBlock::Place {
  SharedLine line;
  Futex bell;
  OpDescriptor notices[kNotices];
};

std::size_t SharedControlBlock::Bytes(int size) {
  return static_cast<std::size_t>(size) * (RoundUp(sizeof(Place), kPageBytes) + 2 * kPieceBytes);
}

SharedControlBlock::SharedControlBlock(std::shared_ptr<std::byte> memory, int rank, int size)
    : memory_(std::move(memory)),
      rank_(rank),
      size_(size),
      // With fewer processors than ranks, who spins keeps the awaited peer from running.
      spins_(sysconf(_SC_NPROCESSORS_ONLN) >= size),
      left_(static_cast<std::size_t>(size)) {}

SharedControlBlock::Place& SharedControlBlock::At(int rank) const {
  return *reinterpret_cast<Place*>(memory_.get() + static_cast<std::size_t>(rank) *
                                                       RoundUp(sizeof(Place), kPageBytes));
}

OpDescriptor& SharedControlBlock::Notice(int rank, std::uint64_t number) const {
  return At(rank).notices[number % kNotices];
}

std::byte* SharedControlBlock::Staging(int rank, std::uint64_t piece) const {
  return memory_.get() + static_cast<std::size_t>(size_) * RoundUp(sizeof(Place), kPageBytes) +
         (static_cast<std::size_t>(rank) * 2 + piece % 2) * kPieceBytes;
}

void SharedControlBlock::Advance(Counter counter, std::uint64_t to) {
  (At(rank_).line.*counter).store(to, std::memory_order_release);
  // Either the sleeper-to-be sees the counter, or this rank sees that it sleeps.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int peer = 0; peer < size_; ++peer) {
    Futex& bell = At(peer).bell;
    if (peer == rank_ || bell.sleeping.load(std::memory_order_relaxed) == 0) continue;
    bell.rings.fetch_add(1, std::memory_order_release);
    FutexWake(bell.rings);
  }
}

bool SharedControlBlock::Reached(Counter counter, std::uint64_t at_least) const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if ((At(peer).line.*counter).load(std::memory_order_acquire) < at_least) return false;
  }
  return true;
}

std::vector<int> SharedControlBlock::Missing(Counter counter, std::uint64_t at_least) const {
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    if ((At(peer).line.*counter).load(std::memory_order_acquire) < at_least) {
      missing.push_back(peer);
    }
  }
  return missing;
}

bool SharedControlBlock::AwaitSpinning(Counter counter, std::uint64_t at_least) const {
  if (Reached(counter, at_least)) return true;
  if (!spins_) return false;
  const TimePoint end = SystemClock().Now() + kSpin;
  while (!ended_.load(std::memory_order_relaxed)) {
    for (int i = 0; i < 16; ++i) Pause();
    if (Reached(counter, at_least)) return true;
    if (SystemClock().Now() >= end) return false;
  }
  return false;
}

// OK: nothing speaks against waiting on.
Status SharedControlBlock::WhyNot(const std::vector<int>& missing, Deadline deadline) const {
  if (ended_.load(std::memory_order_acquire)) return outcome();
  for (const int peer : missing) {
    if (left_[static_cast<std::size_t>(peer)].load(std::memory_order_acquire)) {
      return Unavailable("rank " + std::to_string(peer) + " has left the group");
    }
  }
  if (!deadline.Expired()) return OkStatus();
  std::string names;
  for (const int peer : missing) names += (names.empty() ? "" : ", ") + std::to_string(peer);
  return DeadlineExceeded((missing.size() > 1 ? "ranks " : "rank ") + names +
                          " did not come in time");
}

Status SharedControlBlock::Await(Counter counter, std::uint64_t at_least, Deadline deadline) {
  // What a peer has finished it cannot give up.
  const bool of_the_past = counter == &SharedLine::finished;
  const auto reached = [&] { return of_the_past ? OkStatus() : CheckPeers(); };
  if (AwaitSpinning(counter, at_least)) return reached();
  Futex& bell = At(rank_).bell;
  Status status;
  for (;;) {
    const std::uint32_t rings = bell.rings.load(std::memory_order_acquire);
    bell.sleeping.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const std::vector<int> missing = Missing(counter, at_least);
    if (missing.empty()) break;
    status = WhyNot(missing, deadline);
    // What a peer did before it left counts.
    if (!status.ok() && Reached(counter, at_least)) status = OkStatus();
    if (!status.ok()) break;
    FutexWait(bell.rings, rings, deadline);
  }
  bell.sleeping.store(0, std::memory_order_relaxed);
  return status.ok() ? reached() : status;
}

Status SharedControlBlock::CheckPeers() const {
  const std::uint64_t number = At(rank_).line.finished.load(std::memory_order_relaxed) + 1;
  for (int peer = 0; peer < size_; ++peer) {
    const std::uint64_t gave_up = At(peer).line.gave_up.load(std::memory_order_acquire);
    if (peer == rank_ || gave_up == 0 || gave_up > number) continue;
    const Deadline deadline = Deadline::After(kNewsTimeout);
    std::atomic<std::uint32_t>& rings = At(rank_).bell.rings;
    for (;;) {
      const std::uint32_t before = rings.load(std::memory_order_acquire);
      if (ended_.load(std::memory_order_acquire)) return outcome();
      if (deadline.Expired()) break;
      FutexWait(rings, before, deadline);
    }
    return Unavailable("rank " + std::to_string(peer) + " gave up its generation");
  }
  return OkStatus();
}

void SharedControlBlock::WakePeers() {
  Futex& bell = At(rank_).bell;
  bell.rings.fetch_add(1, std::memory_order_seq_cst);
  FutexWake(bell.rings);
}

Status SharedControlBlock::End(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (outcome_.ok()) outcome_ = reason;
  ended_.store(true, std::memory_order_seq_cst);
  WakePeers();
  return outcome_;
}

void SharedControlBlock::GiveUp() {
  SharedLine& line = At(rank_).line;
  if (line.gave_up.load(std::memory_order_relaxed) != 0) return;
  const std::uint64_t number = line.finished.load(std::memory_order_relaxed) + 1;
  line.gave_up.store(number, std::memory_order_release);
}

void SharedControlBlock::Left(int peer) {
  left_[static_cast<std::size_t>(peer)].store(true, std::memory_order_seq_cst);
  WakePeers();
}

Status SharedControlBlock::outcome() const {
  std::lock_guard lock(mutex_);
  return outcome_;
}

}  // namespace muster
