#include "coordinator/store/etcd_archive.h"

#include <iterator>
#include <limits>

#include "coordinator/store/record_codec.h"

namespace muster {

// The fields of ArchivedJob, with two of JobRecord behind them.
std::string EtcdArchive::Encode(const Entry& entry) {
  std::string text = muster::Encode(entry.job);
  text.pop_back();
  return text + "," + EncodeField("name", entry.name) + "," +
         EncodeField("output_dir", entry.output_dir) + "}";
}

Result<EtcdArchive::Entry> EtcdArchive::Decode(const std::string& text) {
  MUSTER_ASSIGN_OR_RETURN(ArchivedJob job, muster::Decode<ArchivedJob>(text));
  MUSTER_ASSIGN_OR_RETURN(JobRecord names, muster::Decode<JobRecord>(text));
  return Entry{std::move(job), std::move(names.name), std::move(names.output_dir)};
}

void EtcdArchive::Add(const Entry& entry) {
  Remove(entry.job.id);
  const std::uint64_t order = entry.job.submit_order;
  jobs_[entry.job.id] = {order, entry.name, entry.output_dir};
  orders_[order] = entry.job.id;
  names_[{entry.name, order}] = entry.job.id;
  outputs_[{entry.output_dir, order}] = entry.job.id;
}

void EtcdArchive::Remove(const JobId& job) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  const Place& place = found->second;
  orders_.erase(place.order);
  names_.erase({place.name, place.order});
  outputs_.erase({place.output_dir, place.order});
  jobs_.erase(found);
}

std::optional<JobId> EtcdArchive::Newest(const std::map<Order, JobId>& of,
                                         const std::string& text) {
  const auto after = of.upper_bound({text, std::numeric_limits<std::uint64_t>::max()});
  if (after == of.begin()) return std::nullopt;
  const auto newest = std::prev(after);
  if (newest->first.first != text) return std::nullopt;
  return newest->second;
}

std::optional<JobId> EtcdArchive::Named(const std::string& name) const {
  return Newest(names_, name);
}

std::optional<JobId> EtcdArchive::OwnerOfOutput(const JobId& job) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return std::nullopt;
  return Newest(outputs_, found->second.output_dir);
}

std::vector<JobId> EtcdArchive::Page(std::uint64_t before_order, int limit) const {
  std::vector<JobId> page;
  auto it = orders_.lower_bound(before_order);
  while (it != orders_.begin() && static_cast<int>(page.size()) < limit)
    page.push_back((--it)->second);
  return page;
}

}  // namespace muster
