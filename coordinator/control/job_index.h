// JobIndex: for each node the jobs that its Hello, drain or loss may concern: their processes may
// be there, it is excluded from them, or it is to write their commit records.
//
// Part of State; Transaction updates it. Pure; any one thread.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "common/base/ids.h"

namespace muster::control {

class JobIndex {
 public:
  // These nodes, in any order, may concern the job, and no others; none: it leaves the index.
  void Set(const JobId& job, std::vector<NodeName> nodes);

  // In order; a copy, since handling one may change the index.
  std::vector<JobId> Of(const NodeName& node) const;
  bool Has(const NodeName& node) const { return jobs_.contains(node); }
  bool Has(const NodeName& node, const JobId& job) const;
  const std::map<NodeName, std::set<JobId>>& jobs() const { return jobs_; }

 private:
  std::map<NodeName, std::set<JobId>> jobs_;
  std::map<JobId, std::vector<NodeName>> nodes_;  // the same by job; sorted
};

}  // namespace muster::control
