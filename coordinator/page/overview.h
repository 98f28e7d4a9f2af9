// Overview: the cluster on one page: problems, sums, jobs, nodes, newest events.
//
// Owned by PageFeeds; pure, one thread. An update reads each job and node; text is made only of
// those that have changed. The newest kMaxEnded jobs that ended in the last day are shown, as
// `muster get` does, with the number of the others.
//
// Parts: "problems", "cluster", "queues", "job/ID", "node/NAME", "event/SEQ".
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "coordinator/page/event_parts.h"
#include "coordinator/page/page_document.h"
#include "coordinator/page/problems.h"

namespace muster {

class Overview final : public PageDocument {
 public:
  static constexpr std::size_t kMaxEnded = 1000;
  static constexpr std::size_t kMaxEvents = 50;

  // Shows the jobs that `sees` takes, and their events; empty: all.
  explicit Overview(std::string cluster, JobFilter sees = nullptr)
      : cluster_(std::move(cluster)), sees_(std::move(sees)) {}

  void Update(const Controller& controller, const Histories& histories, const Now& now) override;

 private:
  // The fields of a node that its row shows.
  struct ShownNode {
    NodeRecord record;
    int used = 0;
    std::size_t gpus_used = 0;
    bool connected = false;
    friend bool operator==(const ShownNode&, const ShownNode&) = default;
  };

  void UpdateJobs(const std::vector<JobView>& shown);
  void UpdateNodes(const std::vector<NodeView>& nodes);

  const std::string cluster_;
  const JobFilter sees_;
  std::map<JobId, std::uint64_t> jobs_;  // shown, at this version
  std::map<NodeName, ShownNode> nodes_;
  EventParts events_{{}, kMaxEvents};
};

}  // namespace muster
