// SlowRankWatch: which rank makes the others wait, by the work of its own per step.
//
// Looks at windows in which every rank has finished kSteps steps and the others have worked for
// kSeconds, so that noise of very fast steps names nobody; the first one begins after every rank's
// first step, which is unlike the others. A rank is slow that is the slowest, by kRatio, in
// kWindows windows in a row: a machine that is busy for a while names nobody either. It is so until
// a window ends otherwise. The coordinator's detector, which writes an event once, is stricter in
// time and has its own windows; this one also says when it is over.
//
// One per job that runs, owned by whoever shows it; one thread. Pure. 24 bytes per rank.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace muster {

struct SlowRank {
  int rank = 0;
  double seconds = 0;         // of its own work per step
  double others_seconds = 0;  // the median of all
};

class SlowRankWatch {
 public:
  static constexpr std::int64_t kSteps = 20;
  static constexpr double kSeconds = 5;
  static constexpr double kRatio = 1.1;  // of the median
  static constexpr int kWindows = 3;

  // Since its process began, by rank.
  struct Work {
    double busy_seconds = 0;  // out of waits for peers
    std::int64_t steps = 0;
  };
  // Another generation begins anew, as does a process that has done fewer steps than before.
  void Observe(std::int64_t generation, const std::vector<Work>& ranks);

  // Null: nobody is slow, or it is not known yet.
  const SlowRank* slowest() const { return windows_ >= kWindows ? &*suspect_ : nullptr; }

 private:
  void Begin(std::int64_t generation, const std::vector<Work>& ranks);
  void Forget();

  std::int64_t generation_ = 0;
  std::vector<Work> begin_;          // of the window
  std::optional<SlowRank> suspect_;  // of the newest window
  int windows_ = 0;                  // in a row that it was slow in
};

}  // namespace muster
