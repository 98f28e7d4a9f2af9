// Scrape targets for Prometheus: the JSON of /sd, and a copy of it in a file.
//
// Format: Prometheus' HTTP service discovery, which is that of its file_sd files as well
// (https://prometheus.io/docs/prometheus/latest/http_sd): a list of groups, each with targets and
// labels, whole every time.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "coordinator/control/controller.h"

namespace muster {

// Labels of all targets; empty ones are omitted.
struct DiscoveryLabels {
  std::string cluster;
  std::string slurm_cluster;  // the one that the coordinator itself runs in
  std::string slurm_job_id;
};

// /metrics of the coordinators first, empty addresses left out, then those of workers. A scraper
// that uses TLS is on another machine and also reaches the other targets by TLS. A worker that a
// pilot job started carries the key of that pilot. Pure.
std::string ServiceDiscovery(const Controller& controller,
                             const std::vector<std::string>& coordinators, bool by_tls,
                             const DiscoveryLabels& labels);

// `bound`, the address of a server's listener, as other machines reach it: `own` if it is a
// wildcard address (0.0.0.0, [::]). Fails as `own` does.
Result<std::string> ReachableAddress(const std::string& bound,
                                     const std::function<Result<std::string>()>& own);

// SLURM_CLUSTER_NAME and SLURM_JOB_ID of this process.
DiscoveryLabels LabelsOfEnvironment(const std::string& cluster);

// Keeps the file equal to the list: checks every second, on a thread of its own, and writes it
// whole when the list has changed or the file is gone. A failure is logged once, and retried.
//
// Owned by the server, loop's thread. The file remains afterwards: its readers find the targets
// down.
class DiscoveryFile {
 public:
  DiscoveryFile(EventLoop& loop, std::string path, std::function<std::string()> list);

  void Start() { Look(); }

 private:
  void Look();
  void OnWritten(std::string text, const Status& status);

  EventLoop& loop_;
  const std::string path_;
  const std::function<std::string()> list_;
  std::string written_;
  bool failed_ = false;
  Timer timer_;
  WorkerPool pool_;  // joins before what its work uses is destroyed
};

}  // namespace muster
