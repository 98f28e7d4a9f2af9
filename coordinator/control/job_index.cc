#include "coordinator/control/job_index.h"

#include <algorithm>
#include <utility>

namespace muster::control {

void JobIndex::Set(const JobId& job, std::vector<NodeName> nodes) {
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  std::vector<NodeName>& known = nodes_[job];
  if (nodes != known) {
    for (const NodeName& node : known) {
      const auto jobs = jobs_.find(node);
      jobs->second.erase(job);
      if (jobs->second.empty()) jobs_.erase(jobs);
    }
    for (const NodeName& node : nodes) jobs_[node].insert(job);
    known = std::move(nodes);
  }
  if (known.empty()) nodes_.erase(job);
}

std::vector<JobId> JobIndex::Of(const NodeName& node) const {
  const auto jobs = jobs_.find(node);
  if (jobs == jobs_.end()) return {};
  return {jobs->second.begin(), jobs->second.end()};
}

bool JobIndex::Has(const NodeName& node, const JobId& job) const {
  const auto jobs = jobs_.find(node);
  return jobs != jobs_.end() && jobs->second.contains(job);
}

}  // namespace muster::control
