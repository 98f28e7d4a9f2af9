// What a worker says of its node at its start: where others reach it, what carries data between its
// ranks, which GPUs they get, and what of that does not fit together. Any thread; takes up to a
// second where GPUs are.
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
