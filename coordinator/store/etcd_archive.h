// EtcdArchive: the archived jobs of a store in etcd: where each is, and its records, which lie
// there in packs (archive_pack.h) under the keys archive/NUMBER and archive-index/NUMBER.
//
// Owned by EtcdStore; one thread at a time. Jobs come into the newest pack until that is full.
// Changes are kept here until PutChanged hands the keys out for a transaction; if that fails, the
// store is poisoned. Some 500 bytes a job stay in memory.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "coordinator/domain/archived_job.h"
#include "coordinator/store/archive_pack.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"
#include "coordinator/store/etcd_reader.h"
#include "coordinator/store/store.h"

namespace muster {

class EtcdArchive {
 public:
  // Both outlive it.
  EtcdArchive(EtcdClient& client, const EtcdKeys& keys) : client_(client), keys_(keys) {}

  // What a start reads.
  Status Load(EtcdReader& reader, std::vector<ArchivedJob>* jobs);

  Status Add(const ArchivedJob& job, const ArchivedRecords& records);
  // These do nothing where the job, or the checkpoint, is not archived.
  Status Put(const JobRecord& job);
  Status Put(const CheckpointRecord& checkpoint);
  Status Remove(const JobId& job);
  // The keys of the packs that were changed since.
  void PutChanged(EtcdChanges* changes);

  Result<std::vector<ArchivedRecords>> Select(const ArchiveQuery& query);

 private:
  using Order = std::pair<std::string, std::uint64_t>;  // by name or directory, then by submission
  struct Place {
    std::uint64_t order = 0;
    std::uint64_t pack = 0;
    std::string name;
    std::string output_dir;
  };

  void AddPlace(const ArchiveEntry& entry, std::uint64_t pack);
  void RemovePlace(const JobId& job);
  static std::optional<JobId> Newest(const std::map<Order, JobId>& of, const std::string& text);
  Result<std::vector<ArchivedRecords>> SelectPage(std::uint64_t before_order, int limit);
  Result<ArchivePack*> Open(std::uint64_t number);
  // Changes the pack of an archived job; does nothing for another.
  Status Change(const JobId& job, const std::function<Status(ArchivePack&)>& change);
  void CloseAllButNewest();

  EtcdClient& client_;
  const EtcdKeys& keys_;
  std::map<JobId, Place> jobs_;
  std::map<std::uint64_t, JobId> orders_;
  std::map<Order, JobId> names_;
  std::map<Order, JobId> outputs_;
  std::uint64_t newest_ = 1;                   // pack
  std::map<std::uint64_t, ArchivePack> open_;  // those in use, and the newest
  std::set<std::uint64_t> changed_;            // of these
};

// The keys of a pack; deleted where it is empty.
void PutPack(const EtcdKeys& keys, std::uint64_t number, const ArchivePack& pack,
             EtcdChanges* changes);

}  // namespace muster
