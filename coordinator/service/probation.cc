#include "coordinator/service/probation.h"

#include <algorithm>

namespace muster {

Duration Probation::MakeRoom(TimePoint now, std::vector<Id>* gone) {
  if (open_.size() < limits_.connections) return Duration::zero();
  Duration soonest = kTimeout;
  for (const auto& [id, open] : open_) {
    const Duration left = open.begun + (open.bytes > 0 ? kTimeout : kSilentTimeout) - now;
    if (left <= Duration::zero()) {
      gone->push_back(id);
      End(id);
      return Duration::zero();
    }
    soonest = std::min(soonest, left);
  }
  return soonest;
}

void Probation::End(Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  bytes_ -= found->second.bytes;
  open_.erase(found);
}

void Probation::Sent(Id id, std::uint64_t bytes, std::uint64_t unread, TimePoint now) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  std::optional<TimePoint>& behind_since = found->second.behind_since;
  if (unread <= kBehind) {
    behind_since.reset();
  } else if (!behind_since) {
    behind_since = now;
  }
  bytes_ += bytes - found->second.bytes;
  found->second.bytes = bytes;
}

std::vector<Probation::Id> Probation::TakeOverdue(TimePoint now) {
  const auto since = [](const Open& open) { return open.behind_since.value_or(TimePoint::max()); };
  const auto first =
      std::ranges::min_element(open_, {}, [&](const auto& entry) { return since(entry.second); });
  std::vector<Id> overdue;
  for (const auto& [id, open] : open_) {
    const bool behind =
        open.behind_since && (id != first->first || now - *open.behind_since >= limits_.behind);
    if (behind || open.bytes > limits_.bytes || now - open.begun >= limits_.time)
      overdue.push_back(id);
  }
  for (const Id id : overdue) End(id);
  while (bytes_ > limits_.bytes_of_all) {
    const auto most =
        std::ranges::max_element(open_, {}, [](const auto& entry) { return entry.second.bytes; });
    overdue.push_back(most->first);
    End(most->first);
  }
  return overdue;
}

}  // namespace muster
