// StepFunction: a value that changes at points of time, such as what of a node is free.
//
// A plain value, copied freely; any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
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

  StepFunction(TimePoint begin, Value value) : first_{begin, std::move(value)} {}

  // In order of time; there is one at least.
  std::size_t size() const { return 1 + later_.size(); }
  const Step& at(std::size_t i) const { return i == 0 ? first_ : later_[i - 1]; }
  TimePoint begin() const { return first_.from; }
  const Value& first() const { return first_.value; }

  // Applies `change` to the value in [from, to). What is before the first step is not there.
  template <typename Change>
  void Apply(TimePoint from, TimePoint to, Change change) {
    const std::size_t begin = Split(from);
    const std::size_t end = to == kNever ? size() : Split(to);
    for (std::size_t i = begin; i < end; ++i) change(Mutable(i).value);
  }

  // A step after all others, or the last one's value if they begin at the same time.
  void Append(TimePoint from, Value value) {
    Step& last = Mutable(size() - 1);
    if (from > last.from)
      later_.push_back({from, std::move(value)});
    else
      last.value = std::move(value);
  }

  // The values in [from, to), merged by `merge(a, b)`.
  template <typename Merge>
  Value Over(TimePoint from, TimePoint to, Merge merge) const {
    if (later_.empty()) return first_.value;
    std::size_t i = IndexAt(from);
    Value value = at(i).value;
    while (++i < size() && at(i).from < to) value = merge(value, at(i).value);
    return value;
  }

  // When something of that length can start, in order: from then on for `length` the merged value
  // must be `ok`. `merge` never makes a value ok. Calls `found(TimeSpan)` for each.
  template <typename Merge, typename Ok, typename Found>
  void EachStart(Duration length, Merge merge, Ok ok, Found found) const {
    if (length == kForever) return StartForEver(merge, ok, found);
    std::optional<TimeSpan> newest;  // the next step may prolong it
    for (std::size_t i = 0; i < size(); ++i) {
      const TimePoint from = at(i).from;
      const TimePoint next = i + 1 < size() ? at(i + 1).from : kNever;
      const TimePoint last = LastStart(i, next, length, merge, ok);
      if (last <= from) continue;
      if (newest && newest->to == from) {
        newest->to = std::min(next, last);
        continue;
      }
      if (newest) found(*newest);
      newest = TimeSpan{from, std::min(next, last)};
    }
    if (newest) found(*newest);
  }

 private:
  template <typename Merge, typename Ok, typename Found>
  void StartForEver(Merge merge, Ok ok, Found found) const {
    std::size_t first = size();
    for (Value value = at(first - 1).value; ok(value); value = merge(at(first - 1).value, value))
      if (--first == 0) break;
    if (first < size()) found(TimeSpan{at(first).from, kNever});
  }

  // Before when it must start, if it starts in step `i`, before `next`; the step's begin: not
  // there.
  template <typename Merge, typename Ok>
  TimePoint LastStart(std::size_t i, TimePoint next, Duration length, Merge merge, Ok ok) const {
    Value value = at(i).value;
    if (!ok(value)) return at(i).from;
    for (std::size_t j = i + 1; j < size() && at(j).from - length < next; ++j) {
      value = merge(value, at(j).value);
      if (!ok(value)) return at(j).from - length + Duration(1);
    }
    return kNever;
  }

  Step& Mutable(std::size_t i) { return i == 0 ? first_ : later_[i - 1]; }

  // The step that holds at that time.
  std::size_t IndexAt(TimePoint time) const {
    const auto after = std::ranges::upper_bound(later_, time, {}, &Step::from);
    return static_cast<std::size_t>(after - later_.begin());
  }

  // The step that begins at that time, or the first one.
  std::size_t Split(TimePoint time) {
    const std::size_t i = IndexAt(time);
    if (time <= at(i).from) return i;
    Step step{time, at(i).value};
    later_.insert(later_.begin() + static_cast<std::ptrdiff_t>(i), std::move(step));
    return i + 1;
  }

  Step first_;  // most functions have no other
  std::vector<Step> later_;
};

}  // namespace muster
