#include "worker/fabric/nccl_filter.h"

#include <algorithm>

#include "worker/fabric/sysfs.h"

namespace muster::worker {

NcclFilter::NcclFilter(std::string_view text) {
  exclude_ = text.starts_with('^');
  if (exclude_) text.remove_prefix(1);
  exact_ = text.starts_with('=');
  if (exact_) text.remove_prefix(1);
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    std::string name(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    Entry entry;
    if (const std::size_t colon = name.find(':'); colon != std::string::npos) {
      entry.port = static_cast<int>(ParseNumber(name.substr(colon + 1), -1));
      name.resize(colon);
    }
    entry.name = std::move(name);
    if (!entry.name.empty()) entries_.push_back(std::move(entry));
  }
}

bool NcclFilter::TakesPort(std::string_view name, int port) const {
  if (entries_.empty()) return true;
  const bool listed = std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    const bool same = exact_ ? name == entry.name : name.starts_with(entry.name);
    return same && (entry.port < 0 || port < 0 || entry.port == port);
  });
  return listed != exclude_;
}

}  // namespace muster::worker
