// A worker's report of its node at its start: its address, the transports between its ranks, the
// GPUs that they get, and what of that does not fit together. Any thread; takes up to a second if
// there are GPUs.
#pragma once

#include <string>
#include <vector>

#include "worker/fabric/gpu_binding.h"
#include "worker/fabric/node_address.h"
#include "worker/fabric/transport_report.h"

namespace muster::worker {

struct NodeReportOptions {
  NodeAddress address;
  std::string nvml_library;                  // empty: none
  const char* const* environment = nullptr;  // ::environ
  std::string root = "/";
};

struct NodeReport {
  GpuBinding gpus;
  std::vector<std::string> lines;  // TransportReport::Lines, the address first
};

NodeReport LookAtNode(const NodeReportOptions& options);

}  // namespace muster::worker
