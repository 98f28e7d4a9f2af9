#include "coordinator/control/archive.h"

#include <algorithm>

#include "common/base/check.h"

namespace muster::control {

void Archive::Add(const ArchivedJob& job, TimePoint delete_at) {
  const auto [at, is_new] = jobs_.emplace(job.id, Entry{.key_print = job.key_print,
                                                        .spec_print = job.spec_print,
                                                        .delete_at = delete_at,
                                                        .state = job.state});
  MUSTER_CHECK(is_new, "job " + job.id.value + " is archived twice");
  if (job.key_print != 0) keys_[job.key_print] = &*at;
  if (delete_at == TimePoint::max()) return;
  // At the end as a rule: jobs are archived in the order in which they ended.
  const auto place = std::upper_bound(
      by_deletion_.begin(), by_deletion_.end(), delete_at,
      [](TimePoint when, const Jobs::value_type* each) { return when < each->second.delete_at; });
  by_deletion_.insert(place, &*at);
}

std::optional<JobId> Archive::PopDue(TimePoint now) {
  if (by_deletion_.empty() || by_deletion_.front()->second.delete_at > now) return std::nullopt;
  const Jobs::value_type* due = by_deletion_.front();
  by_deletion_.pop_front();
  const auto key = keys_.find(due->second.key_print);
  if (key != keys_.end() && key->second == due) keys_.erase(key);
  JobId id = due->first;
  jobs_.erase(id);
  return id;
}

std::optional<TimePoint> Archive::Next() const {
  if (by_deletion_.empty()) return std::nullopt;
  return by_deletion_.front()->second.delete_at;
}

const Archive::Jobs::value_type* Archive::FindKey(std::string_view key) const {
  const auto found = key.empty() ? keys_.end() : keys_.find(TextPrint(key));
  return found == keys_.end() ? nullptr : found->second;
}

}  // namespace muster::control
