#include "coordinator/store/etcd_archive.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "coordinator/store/journal_format.h"
#include "coordinator/store/records_of_jobs.h"

namespace muster {
namespace {

constexpr char kRecords[] = "archive/";
constexpr char kIndex[] = "archive-index/";

}  // namespace

void PutPack(const EtcdKeys& keys, std::uint64_t number, const ArchivePack& pack,
             EtcdChanges* changes) {
  auto& records = (*changes)[keys.Numbered(kRecords, number)];
  auto& index = (*changes)[keys.Numbered(kIndex, number)];
  records.reset();
  index.reset();
  if (pack.empty()) return;
  ArchivePack::Values values = pack.Encode();
  records = std::move(values.records);
  index = std::move(values.index);
}

Status EtcdArchive::Load(EtcdReader& reader, std::vector<ArchivedJob>* jobs) {
  jobs_.clear();
  orders_.clear();
  names_.clear();
  outputs_.clear();
  open_.clear();
  newest_ = 1;
  const std::string all = keys_.Under(kIndex);
  return reader.Read(all, EtcdPrefixEnd(all), [&](const EtcdEntry& entry) -> Status {
    const auto index = ArchivePack::DecodeIndex(entry.value);
    if (!index.ok()) return index.status().WithContext(entry.key);
    newest_ = NumberOfName(std::string_view(entry.key).substr(all.size()));
    for (const ArchiveEntry& each : *index) {
      AddPlace(each, newest_);
      jobs->push_back(each.job);
    }
    return OkStatus();
  });
}

void EtcdArchive::AddPlace(const ArchiveEntry& entry, std::uint64_t pack) {
  RemovePlace(entry.job.id);
  const std::uint64_t order = entry.job.submit_order;
  jobs_[entry.job.id] = {order, pack, entry.name, entry.output_dir};
  orders_[order] = entry.job.id;
  names_[{entry.name, order}] = entry.job.id;
  outputs_[{entry.output_dir, order}] = entry.job.id;
}

void EtcdArchive::RemovePlace(const JobId& job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  const Place& place = found->second;
  orders_.erase(place.order);
  names_.erase({place.name, place.order});
  outputs_.erase({place.output_dir, place.order});
  jobs_.erase(found);
}

// A pack that is not stored is empty.
Result<ArchivePack*> EtcdArchive::Open(std::uint64_t number) {
  if (const auto found = open_.find(number); found != open_.end()) return &found->second;
  EtcdReader reader(client_);
  const std::string key = keys_.Numbered(kRecords, number);
  MUSTER_ASSIGN_OR_RETURN(auto records, reader.Get(key));
  MUSTER_ASSIGN_OR_RETURN(auto index, reader.Get(keys_.Numbered(kIndex, number)));
  if (!records && !index) return &open_[number];
  auto pack = ArchivePack::Decode({std::move(records).value_or(""), std::move(index).value_or("")});
  if (!pack.ok()) return pack.status().WithContext(key);
  return &(open_[number] = *std::move(pack));
}

void EtcdArchive::CloseAllButNewest() {
  std::erase_if(open_, [this](const auto& each) { return each.first != newest_; });
}

Status EtcdArchive::Add(const ArchivedJob& job, const ArchivedRecords& records) {
  MUSTER_ASSIGN_OR_RETURN(ArchivePack * pack, Open(newest_));
  if (pack->full()) pack = &open_[++newest_];
  const ArchiveEntry entry{job, records.job.name, records.job.output_dir};
  pack->Add(entry, records);
  changed_.insert(newest_);
  AddPlace(entry, newest_);
  return OkStatus();
}

Status EtcdArchive::Change(const JobId& job, const std::function<Status(ArchivePack&)>& change) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(ArchivePack * pack, Open(found->second.pack));
  changed_.insert(found->second.pack);
  return change(*pack);
}

Status EtcdArchive::Put(const JobRecord& job) {
  return Change(job.id, [&job](ArchivePack& pack) -> Status {
    MUSTER_ASSIGN_OR_RETURN(ArchivedRecords records, pack.Records(job.id));
    records.job = job;
    pack.Replace(job.id, records);
    return OkStatus();
  });
}

Status EtcdArchive::Put(const CheckpointRecord& checkpoint) {
  return Change(checkpoint.job, [&checkpoint](ArchivePack& pack) -> Status {
    MUSTER_ASSIGN_OR_RETURN(ArchivedRecords records, pack.Records(checkpoint.job));
    const auto stored =
        std::ranges::find(records.checkpoints, checkpoint.directory, &CheckpointRecord::directory);
    if (stored == records.checkpoints.end()) return OkStatus();
    *stored = checkpoint;
    pack.Replace(checkpoint.job, records);
    return OkStatus();
  });
}

Status EtcdArchive::Remove(const JobId& job) {
  MUSTER_RETURN_IF_ERROR(Change(job, [&job](ArchivePack& pack) {
    pack.Remove(job);
    return OkStatus();
  }));
  RemovePlace(job);
  return OkStatus();
}

void EtcdArchive::PutChanged(EtcdChanges* changes) {
  for (const std::uint64_t number : std::exchange(changed_, {}))
    PutPack(keys_, number, open_.at(number), changes);
  CloseAllButNewest();
}

std::optional<JobId> EtcdArchive::Newest(const std::map<Order, JobId>& of,
                                         const std::string& text) {
  const auto after = of.upper_bound({text, std::numeric_limits<std::uint64_t>::max()});
  if (after == of.begin()) return std::nullopt;
  const auto newest = std::prev(after);
  if (newest->first.first != text) return std::nullopt;
  return newest->second;
}

Result<std::vector<ArchivedRecords>> EtcdArchive::Select(const ArchiveQuery& query) {
  if (query.is_page()) return SelectPage(query.before_order, query.limit);
  const JobId job = query.job.empty() ? Newest(names_, query.name).value_or(JobId{}) : query.job;
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return std::vector<ArchivedRecords>();
  MUSTER_ASSIGN_OR_RETURN(ArchivePack * pack, Open(found->second.pack));
  MUSTER_ASSIGN_OR_RETURN(ArchivedRecords records, pack->Records(job));
  CloseAllButNewest();
  OrderCheckpoints(&records.checkpoints);
  records.output_owner = Newest(outputs_, found->second.output_dir).value_or(JobId{});
  return std::vector{std::move(records)};
}

// Neighbours share packs, which are each read once.
Result<std::vector<ArchivedRecords>> EtcdArchive::SelectPage(std::uint64_t before_order,
                                                             int limit) {
  std::vector<ArchivedRecords> page;
  auto it = orders_.lower_bound(before_order);
  while (it != orders_.begin() && static_cast<int>(page.size()) < limit) {
    const JobId& job = (--it)->second;
    MUSTER_ASSIGN_OR_RETURN(ArchivePack * pack, Open(jobs_.at(job).pack));
    MUSTER_ASSIGN_OR_RETURN(page.emplace_back().job, pack->Job(job));
  }
  CloseAllButNewest();
  return page;
}

}  // namespace muster
