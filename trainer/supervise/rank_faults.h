// RankFaults: faults that a user orders in a rank of a running job, to rehearse what comes of them.
//
// The supervisor's reader thread arms one by the guardian's "fault" message; the trainer's thread
// acts on it when it next comes to the point where such a fault strikes. What happens then is the
// real thing, at this rank alone: a hung rank does not answer, memory runs out in an allocation.
//
// Owned by the code that runs the trainer; one per process. Threads: Arm may be called by any, the
// points are the trainer's.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

enum class RankFaultKind { kHangData, kHangCollective, kNan, kOom, kSlow, kExit };

struct RankFault {
  RankFaultKind kind = RankFaultKind::kHangData;
  double fraction = 0;  // kSlow: of the time that the rank computes, by which a step gets longer
  int exit_code = 0;    // kExit

  friend bool operator==(const RankFault&, const RankFault&) = default;
};

// kinds: hang-data, hang-collective, nan, oom; slow with a fraction ("0.3" or "30%", 0 ends it);
// exit with a code from 0 to 255, 1 without an argument. kInvalidArgument says what is wrong.
Result<RankFault> ParseRankFault(std::string_view kind, std::string_view argument);

// What a cgroup may hold and does, and what its host has left; bytes.
struct MemoryRoom {
  std::optional<std::uint64_t> limit;  // of the rank's own cgroup; none: as much as there is
  std::uint64_t used = 0;
  bool swaps = false;  // memory over the limit may go to a disk
  std::uint64_t available_on_host = 0;
};
// Whether the rank may fill its cgroup until the kernel ends it: the rest of the host must not feel
// it, so what is left in the cgroup is at most half of what the host can spare.
bool MayFillCgroup(const MemoryRoom& room);

// The effects.
class RankFaultEffects {
 public:
  virtual ~RankFaultEffects() = default;
  // Returns only in tests.
  virtual void Hang() = 0;
  virtual void Exit(int code) = 0;
  // Until the kernel ends the process where MayFillCgroup; else an allocation that no machine can
  // serve throws std::bad_alloc. Returns only in tests.
  virtual void RunOutOfMemory() = 0;
  virtual void Sleep(Duration time) = 0;
};
RankFaultEffects& ProcessFaultEffects();

class RankFaults {
 public:
  // `pause`: before each micro-batch, so that a job of a small model lasts and the processors are
  // free: for tests and rehearsals.
  explicit RankFaults(RankFaultEffects& effects = ProcessFaultEffects(),
                      Duration pause = Duration::zero())
      : effects_(effects), pause_(pause) {}

  // A fault stays armed until it strikes, the newest of a kind; slow stays until it is set to 0.
  Status Arm(std::string_view kind, std::string_view argument);

  // Points of the trainer's thread, in the order of a step.
  // In the data phase of every micro-batch: hang-data, oom, exit.
  void AtData();
  // What this micro-batch's loss is multiplied by: 1, or once NaN.
  double LossFactor();
  // Before the step's last collective, which comes late by slow, or never by hang-collective.
  // `computed` is the time of this step that the rank did not wait for peers.
  void BeforeLastCollective(Duration computed);

 private:
  // The armed fault of that kind, which is then armed no more.
  std::optional<RankFault> Take(RankFaultKind kind);

  RankFaultEffects& effects_;
  const Duration pause_;
  std::mutex mutex_;
  std::optional<RankFault> armed_[6];
};

// What the variable says, in seconds; zero where that is none from 0 to 60.
inline constexpr char kPauseVariable[] = "MUSTER_MICRO_BATCH_PAUSE";
Duration PauseOf(const char* text);

}  // namespace muster
