// StepCurves: a job's figures over its steps, in bounded memory: loss, seconds of a step, memory
// peak, tokens a second.
//
// Owned by Histories; pure, one thread. There are at most kMaxCells cells, each of `stride` steps
// that begin at a multiple of it; when there are too many, the stride doubles and neighbours are
// merged. A cell keeps the least, the greatest and the last value, so that no peak is lost, however
// coarse the cells become. A step that is done again after a recovery replaces what came after it;
// only within the cell that it falls into do the older values still count for least and greatest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/ids.h"

namespace muster {

enum class Curve { kLoss = 0, kStepSeconds, kMemoryBytes, kTokensPerSecond };
inline constexpr std::size_t kCurveCount = 4;

// The figures of one finished step; a figure that is unknown or not finite is NaN.
struct StepSample {
  Step step = 0;
  Generation generation = 0;
  std::array<double, kCurveCount> values = {};  // by Curve
};

struct CurveRange {
  double least = 0;
  double greatest = 0;
  double last = 0;
  bool known = false;

  void Add(double value);
  void Join(const CurveRange& later);
  friend bool operator==(const CurveRange&, const CurveRange&) = default;
};

struct CurveCell {
  Step first = 0;  // the first and the last step that were seen in it
  Step last = 0;
  std::array<CurveRange, kCurveCount> ranges;
  friend bool operator==(const CurveCell&, const CurveCell&) = default;
};

class StepCurves {
 public:
  static constexpr std::size_t kMaxCells = 512;

  // A step of the newest generation that is not above the last one is late, and ignored.
  void Add(const StepSample& sample);
  // The steps in `newer` beyond the last step here.
  void Append(const StepCurves& newer);

  const std::vector<CurveCell>& cells() const { return cells_; }
  Step stride() const { return stride_; }
  Step last_step() const { return cells_.empty() ? 0 : cells_.back().last; }
  // Rises when cells other than the last have changed or gone.
  std::uint64_t revision() const { return revision_; }

 private:
  void ForgetFrom(Step step);
  void Put(const CurveCell& cell);
  void Halve();

  std::vector<CurveCell> cells_;
  Step stride_ = 1;
  Generation generation_ = 0;
  std::uint64_t revision_ = 0;
};

}  // namespace muster
