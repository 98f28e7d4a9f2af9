// DeadlineQueue: deadlines in order of time, at most one for each id. A value; one thread.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "common/base/clock.h"

namespace muster {

// The earlier of two deadlines; empty: never.
inline std::optional<TimePoint> Earliest(const std::optional<TimePoint>& a,
                                         const std::optional<TimePoint>& b) {
  return a && b ? std::min(*a, *b) : a ? a : b;
}

template <typename Id>
class DeadlineQueue {
 public:
  // Replaces the id's deadline; empty: it has none.
  void Set(const Id& id, std::optional<TimePoint> at) {
    if (const auto known = of_.find(id); known != of_.end()) {
      if (known->second == at) return;
      order_.erase({known->second, id});
      of_.erase(known);
    }
    if (!at) return;
    order_.insert({*at, id});
    of_[id] = *at;
  }

  std::optional<TimePoint> Find(const Id& id) const {
    const auto known = of_.find(id);
    return known == of_.end() ? std::nullopt : std::optional(known->second);
  }

  // The earliest; empty: the queue is empty.
  std::optional<TimePoint> Next() const {
    return order_.empty() ? std::nullopt : std::optional(order_.begin()->first);
  }

  // Removes and returns the earliest deadline that is due at `now`; the lowest id of equal ones.
  std::optional<Id> PopDue(TimePoint now) {
    if (order_.empty() || order_.begin()->first > now) return std::nullopt;
    Id id = order_.begin()->second;
    order_.erase(order_.begin());
    of_.erase(id);
    return id;
  }

 private:
  std::set<std::pair<TimePoint, Id>> order_;
  std::map<Id, TimePoint> of_;
};

}  // namespace muster
