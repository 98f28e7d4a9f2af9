#include "worker/guardian/report_log.h"

#include <algorithm>
#include <utility>

namespace muster {

void ReportLog::Add(int rank, std::string kind, std::string json) {
  const auto same = [&](const Entry& e) { return e.rank == rank && e.kind == kind; };
  if (std::count_if(entries_.begin(), entries_.end(), same) >= kMaxPerRankAndKind)
    entries_.erase(std::find_if(entries_.begin(), entries_.end(), same));
  entries_.push_back({rank, std::move(kind), std::move(json)});
}

}  // namespace muster
