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
  std::string node;                          // its name
  std::string nvml_library;                  // empty: none
  const char* const* environment = nullptr;  // ::environ
  std::string root = "/";
  int gpu_shares = 1;                      // how often each GPU is offered
  std::vector<NodeDevice> fake_gpus = {};  // in place of the real ones; empty: there are none
};

struct NodeReport {
  std::vector<NodeDevice> devices;  // that jobs may get
  std::vector<std::string> lines;   // TransportReport::Lines, the address first
};

// kInvalidArgument: more devices than a node may have.
Result<NodeReport> LookAtNode(const NodeReportOptions& options);

}  // namespace muster::worker
