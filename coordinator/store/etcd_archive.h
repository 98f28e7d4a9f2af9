// EtcdArchive: which archived jobs a store in etcd has, and where to find what a query asks for.
//
// Owned by EtcdStore; one thread at a time. Some 200 bytes a job; the records stay in etcd.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "coordinator/domain/archived_job.h"

namespace muster {

class EtcdArchive {
 public:
  struct Entry {
    ArchivedJob job;
    std::string name;
    std::string output_dir;
  };

  // The value of an entry's key, a JSON object, and back. kDataLoss.
  static std::string Encode(const Entry& entry);
  static Result<Entry> Decode(const std::string& text);

  void Add(const Entry& entry);
  void Remove(const JobId& job);
  bool Contains(const JobId& job) const { return jobs_.contains(job); }

  // The newest of that name, and of the output directory of this job.
  std::optional<JobId> Named(const std::string& name) const;
  std::optional<JobId> OwnerOfOutput(const JobId& job) const;
  // Submitted before, the newest first.
  std::vector<JobId> Page(std::uint64_t before_order, int limit) const;

 private:
  using Order = std::pair<std::string, std::uint64_t>;  // by name or directory, then by submission
  struct Place {
    std::uint64_t order = 0;
    std::string name;
    std::string output_dir;
  };
  static std::optional<JobId> Newest(const std::map<Order, JobId>& of, const std::string& text);

  std::map<JobId, Place> jobs_;
  std::map<std::uint64_t, JobId> orders_;
  std::map<Order, JobId> names_;
  std::map<Order, JobId> outputs_;
};

}  // namespace muster
