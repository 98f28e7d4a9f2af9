#include "coordinator/store/records_of_jobs.h"

#include <algorithm>

namespace muster {

void OrderCheckpoints(std::vector<CheckpointRecord>* checkpoints) {
  std::ranges::sort(*checkpoints, {}, CheckpointAge);
}

namespace {

// The newest job for which `counts` is true; nullptr: there is none.
template <typename Counts>
const ArchivedRecords* NewestOf(const RecordsOfJobs& archive, const Counts& counts) {
  const ArchivedRecords* newest = nullptr;
  for (const auto& [id, records] : archive) {
    if (!counts(records.job)) continue;
    if (newest == nullptr || records.job.submit_order > newest->job.submit_order) newest = &records;
  }
  return newest;
}

std::vector<ArchivedRecords> SelectOne(const RecordsOfJobs& archive, const ArchiveQuery& query) {
  const ArchivedRecords* only = NewestOf(archive, [&query](const JobRecord& job) {
    return query.job.empty() ? job.name == query.name : job.id == query.job;
  });
  if (only == nullptr) return {};
  ArchivedRecords found = *only;
  OrderCheckpoints(&found.checkpoints);
  found.output_owner = NewestOf(archive, [&found](const JobRecord& job) {
                         return job.output_dir == found.job.output_dir;
                       })->job.id;
  return {std::move(found)};
}

}  // namespace

std::vector<ArchivedRecords> Select(const RecordsOfJobs& archive, const ArchiveQuery& query) {
  if (!query.is_page()) return SelectOne(archive, query);
  std::vector<ArchivedRecords> found;
  for (const auto& [id, records] : archive)
    if (records.job.submit_order < query.before_order) found.push_back({.job = records.job});
  std::ranges::sort(found, std::ranges::greater(),
                    [](const ArchivedRecords& each) { return each.job.submit_order; });
  if (found.size() > static_cast<std::size_t>(query.limit))
    found.resize(static_cast<std::size_t>(query.limit));
  return found;
}

}  // namespace muster
