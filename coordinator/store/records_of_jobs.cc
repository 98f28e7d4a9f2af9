#include "coordinator/store/records_of_jobs.h"

#include <algorithm>
#include <tuple>

namespace muster {

void OrderCheckpoints(std::vector<CheckpointRecord>* checkpoints) {
  std::ranges::sort(*checkpoints, {}, [](const CheckpointRecord& each) {
    return std::tuple(each.step, each.generation);
  });
}

std::vector<ArchivedRecords> Select(const RecordsOfJobs& archive, const ArchiveQuery& query) {
  std::vector<ArchivedRecords> found;
  if (!query.job.empty()) {
    const auto only = archive.find(query.job);
    if (only != archive.end()) found.push_back(only->second);
    for (ArchivedRecords& each : found) OrderCheckpoints(&each.checkpoints);
    return found;
  }
  for (const auto& [id, records] : archive)
    if (records.job.submit_order < query.before_order) found.push_back({records.job, {}, {}});
  std::ranges::sort(found, std::ranges::greater(),
                    [](const ArchivedRecords& each) { return each.job.submit_order; });
  if (found.size() > static_cast<std::size_t>(query.limit))
    found.resize(static_cast<std::size_t>(query.limit));
  return found;
}

void ArchiveRecords(const JobId& id, std::map<JobId, JobRecord>* jobs,
                    std::map<std::pair<JobId, Generation>, AttemptRecord>* attempts,
                    std::map<std::pair<JobId, std::string>, CheckpointRecord>* checkpoints,
                    RecordsOfJobs* archive) {
  ArchivedRecords& to = (*archive)[id];
  to.job = std::move(jobs->extract(id).mapped());
  const auto of_job = [&id](const auto& each) { return each.first.first == id; };
  for (const auto& [key, attempt] : *attempts)
    if (key.first == id) to.attempts.push_back(attempt);
  for (const auto& [key, checkpoint] : *checkpoints)
    if (key.first == id) to.checkpoints.push_back(checkpoint);
  std::erase_if(*attempts, of_job);
  std::erase_if(*checkpoints, of_job);
}

}  // namespace muster
