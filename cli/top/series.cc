#include "cli/top/series.h"

#include <algorithm>
#include <cmath>

namespace muster {

void Series::Add(std::int64_t step, double value) {
  while (!points_.empty() && points_.back().step >= step) points_.pop_back();
  // The newest point is always there, and moves on until it is far enough from the one before.
  if (points_.size() >= 2 && points_.back().step - points_[points_.size() - 2].step < stride_)
    points_.pop_back();
  points_.push_back({step, value});
  if (points_.size() > kBound) Thin();
}

void Series::Thin() {
  stride_ *= 2;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  if (points_.size() % 2 == 0) points_[kept++] = points_.back();
  points_.resize(kept);
}

std::vector<double> Series::values() const {
  std::vector<double> values(points_.size());
  std::transform(points_.begin(), points_.end(), values.begin(),
                 [](const Point& point) { return point.value; });
  return values;
}

double Series::Median() const {
  std::vector<double> finite;
  for (const Point& point : points_)
    if (std::isfinite(point.value)) finite.push_back(point.value);
  if (finite.empty()) return 0;
  const auto middle = finite.begin() + static_cast<std::ptrdiff_t>(finite.size() / 2);
  std::nth_element(finite.begin(), middle, finite.end());
  return *middle;
}

}  // namespace muster
