// StepFunction: a value that changes at points of time, such as what of a node is free.
//
// A plain value, copied freely; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "common/base/clock.h"

namespace muster {

inline constexpr TimePoint kNever = TimePoint::max();
inline constexpr Duration kForever = Duration::max();

// A start may be from before the clock began.
inline TimePoint EndOf(TimePoint start, Duration length) {
  const bool is_never = length == kForever || length >= kNever - std::max(start, TimePoint());
  return is_never ? kNever : start + length;
}

// Points of time in [from, to).
struct TimeSpan {
  TimePoint from, to;
};

template <typename Value>
class StepFunction {
 public:
  // `value` holds from `from` until the next step.
  struct Step {
    TimePoint from;
    Value value;
  };

  StepFunction(TimePoint begin, Value value) : first_{begin, std::move(value)}, steps_{first_} {}

  const std::vector<Step>& steps() const { return steps_; }
  TimePoint begin() const { return first_.from; }
  const Value& first() const { return first_.value; }

  // Applies `change` to the value in [from, to). What is before the first step is not there.
  template <typename Change>
  void Apply(TimePoint from, TimePoint to, Change change) {
    const std::size_t begin = Split(from);
    const std::size_t end = to == kNever ? steps_.size() : Split(to);
    for (std::size_t i = begin; i < end; ++i) change(steps_[i].value);
    first_.value = steps_.front().value;
  }

  // A step after all others, or the last one's value if they begin at the same time.
  void Append(TimePoint from, Value value) {
    if (from > steps_.back().from)
      steps_.push_back({from, std::move(value)});
    else
      steps_.back().value = std::move(value);
    first_.value = steps_.front().value;
  }

  // The values in [from, to), merged by `merge(a, b)`.
  template <typename Merge>
  Value Over(TimePoint from, TimePoint to, Merge merge) const {
    if (steps_.size() == 1) return first_.value;
    std::size_t i = At(from);
    Value value = steps_[i].value;
    while (++i < steps_.size() && steps_[i].from < to) value = merge(value, steps_[i].value);
    return value;
  }

  // When something of that length can start, in order: from then on for `length` the merged value
  // must be `ok`. `merge` never makes a value ok.
  template <typename Merge, typename Ok>
  std::vector<TimeSpan> Starts(Duration length, Merge merge, Ok ok) const {
    if (length == kForever) return StartsForEver(merge, ok);
    std::vector<TimeSpan> spans;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const TimePoint from = steps_[i].from;
      const TimePoint next = i + 1 < steps_.size() ? steps_[i + 1].from : kNever;
      const TimePoint last = LastStart(i, next, length, merge, ok);
      if (last <= from) continue;
      if (!spans.empty() && spans.back().to == from)
        spans.back().to = std::min(next, last);
      else
        spans.push_back({from, std::min(next, last)});
    }
    return spans;
  }

 private:
  template <typename Merge, typename Ok>
  std::vector<TimeSpan> StartsForEver(Merge merge, Ok ok) const {
    std::size_t first = steps_.size();
    for (Value value = steps_.back().value; ok(value);
         value = merge(steps_[first - 1].value, value))
      if (--first == 0) break;
    if (first == steps_.size()) return {};
    return {{steps_[first].from, kNever}};
  }

  // Before when it must start, if it starts in step `i`, before `next`; the step's begin: not
  // there.
  template <typename Merge, typename Ok>
  TimePoint LastStart(std::size_t i, TimePoint next, Duration length, Merge merge, Ok ok) const {
    Value value = steps_[i].value;
    if (!ok(value)) return steps_[i].from;
    for (std::size_t j = i + 1; j < steps_.size() && steps_[j].from - length < next; ++j) {
      value = merge(value, steps_[j].value);
      if (!ok(value)) return steps_[j].from - length + Duration(1);
    }
    return kNever;
  }

  // The step that holds at that time.
  std::size_t At(TimePoint time) const {
    const auto after = std::ranges::upper_bound(steps_, time, {}, &Step::from);
    return after == steps_.begin() ? 0 : static_cast<std::size_t>(after - steps_.begin()) - 1;
  }

  // The step that begins at that time, or the first one.
  std::size_t Split(TimePoint time) {
    const std::size_t at = At(time);
    if (time <= steps_[at].from) return at;
    steps_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(at) + 1, {time, steps_[at].value});
    return at + 1;
  }

  Step first_;  // a copy, within reach of a look at thousands of functions
  std::vector<Step> steps_;
};

}  // namespace muster
