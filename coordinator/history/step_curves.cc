#include "coordinator/history/step_curves.h"

#include <algorithm>
#include <cmath>

namespace muster {

void CurveRange::Add(double value) {
  if (!std::isfinite(value)) return;
  least = known ? std::min(least, value) : value;
  greatest = known ? std::max(greatest, value) : value;
  last = value;
  known = true;
}

void CurveRange::Join(const CurveRange& later) {
  if (!later.known) return;
  Add(later.least);
  Add(later.greatest);
  last = later.last;
}

void StepCurves::Add(const StepSample& sample) {
  if (sample.generation < generation_) return;
  if (sample.generation > generation_ && sample.step <= last_step()) ForgetFrom(sample.step);
  generation_ = sample.generation;
  if (!cells_.empty() && sample.step <= last_step()) return;
  CurveCell cell{sample.step, sample.step, {}};
  for (std::size_t i = 0; i < kCurveCount; ++i) cell.ranges[i].Add(sample.values[i]);
  Put(cell);
}

void StepCurves::Append(const StepCurves& newer) {
  const Step from = last_step();
  for (const CurveCell& cell : newer.cells_)
    if (cell.first > from || cells_.empty()) Put(cell);
  generation_ = std::max(generation_, newer.generation_);
  ++revision_;
}

void StepCurves::ForgetFrom(Step step) {
  ++revision_;
  std::erase_if(cells_, [step](const CurveCell& cell) { return cell.first >= step; });
  // The cell that it falls into stays, so that the steps before it do not vanish with it.
  if (!cells_.empty()) cells_.back().last = std::min(cells_.back().last, step - 1);
}

void StepCurves::Put(const CurveCell& cell) {
  if (!cells_.empty() && cells_.back().first / stride_ == cell.first / stride_) {
    CurveCell& back = cells_.back();
    back.last = cell.last;
    for (std::size_t i = 0; i < kCurveCount; ++i) back.ranges[i].Join(cell.ranges[i]);
    return;
  }
  cells_.push_back(cell);
  while (cells_.size() > kMaxCells) Halve();
}

void StepCurves::Halve() {
  ++revision_;
  stride_ *= 2;
  std::vector<CurveCell> finer;
  finer.swap(cells_);
  for (const CurveCell& cell : finer) Put(cell);
}

}  // namespace muster
