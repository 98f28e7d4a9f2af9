#include "coordinator/service/job_lookup.h"

#include <memory>
#include <utility>
#include <vector>

namespace muster {

void JobLookup::Find(const std::string& job, JobFilter filter, Found found) const {
  const Result<JobView> known = controller_.FindJob(job, filter);
  if (known.ok()) return found(known);
  ArchiveQuery query{.job = controller_.FindArchived(job, filter)};
  Status missing = NotFound("no job '" + job + "'; 'muster get' lists the jobs");
  if (!query.job.empty() && !filter) missing = NotFound("job " + query.job.value + " was deleted");
  if (query.job.empty()) {
    const bool named = known.status().code() == StatusCode::kNotFound;
    if (!named || controller_.archived_jobs() == 0) return found(known);
    query.name = job;
  }
  store_.ReadArchive(
      query, [&loop = loop_, missing = std::move(missing), filter = std::move(filter),
              found = std::move(found)](Result<std::vector<ArchivedRecords>> read) {
        auto records = std::make_shared<Result<std::vector<ArchivedRecords>>>(std::move(read));
        loop.Post([missing, filter, found, records] {
          if (!records->ok()) return found(records->status());
          if ((*records)->empty() || (filter && !filter((*records)->front().job)))
            return found(missing);
          found(ArchivedJobView((*records)->front()).view());
        });
      });
}

}  // namespace muster
