// Series: a curve over steps as a terminal can show it.
//
// Bounded: when it is full, every second point goes, and from then on fewer are taken, so that the
// whole run stays in view. A step that is done again replaces what was known from there on.
//
// Value type; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster {

class Series {
 public:
  static constexpr std::size_t kBound = 1024;  // points; even

  void Add(std::int64_t step, double value);
  // By step; what is not a number is a gap.
  std::vector<double> values() const;
  bool empty() const { return points_.empty(); }
  double last() const { return points_.back().value; }
  // Over the kept values that are numbers; 0 where there are none.
  double Median() const;

 private:
  struct Point {
    std::int64_t step;
    double value;
  };
  void Thin();

  std::vector<Point> points_;
  std::int64_t stride_ = 1;  // steps between points, at least
};

}  // namespace muster
