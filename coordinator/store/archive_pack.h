// ArchivePack: some dozens of archived jobs as two values of a store in etcd, compressed together.
// Most of a job's records is what other jobs have as well, so a job takes an eighth of its text.
//
//   records   a line each: J and a job with its job file, then A and C with its attempts and
//             checkpoints
//   index     the job's ArchiveEntry, a line each, in the same order
//
// A value; one thread at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/store/record_codec.h"

namespace muster {

class ArchivePack {
 public:
  struct Values {
    std::string records, index;
  };
  // kDataLoss.
  static Result<ArchivePack> Decode(const Values& values);
  static Result<std::vector<ArchiveEntry>> DecodeIndex(std::string_view index);
  Values Encode() const;

  bool empty() const { return jobs_.empty(); }
  // Jobs that come now go into another pack.
  bool full() const;
  // Their entries, in the order of their ids.
  std::vector<ArchiveEntry> entries() const;

  void Add(const ArchiveEntry& entry, const ArchivedRecords& records);
  void Remove(const JobId& job) { jobs_.erase(job); }
  // The job must be there. Without `output_owner`.
  Result<ArchivedRecords> Records(const JobId& job) const;
  Result<JobRecord> Job(const JobId& job) const;
  void Replace(const JobId& job, const ArchivedRecords& records);

 private:
  struct Packed {
    ArchiveEntry entry;
    std::string records;  // their lines
  };
  std::map<JobId, Packed> jobs_;
};

}  // namespace muster
