// Nodes and a job for tests that form gangs over hundreds of nodes.
#pragma once

#include <string>

#include "common/base/version.h"
#include "common/wire/messages.h"

namespace muster {

// What the n-th node reports; names are in the order of n.
inline Hello HelloOfNode(int n, int slots) {
  Hello hello;
  hello.protocol_version = hello.min_protocol_version = kProtocolVersion;
  hello.node = NodeName{"node-" + std::to_string(10000 + n)};
  hello.address = "10.0." + std::to_string(n / 250) + "." + std::to_string(1 + n % 250);
  hello.host_id = "boot-" + std::to_string(n);
  hello.failure_domain = "rack-" + std::to_string(10000 + n / 32);
  hello.slots = slots;
  hello.instance = "first";
  hello.metrics_port = 9100;
  return hello;
}

inline std::string GangYaml(int nodes, int ranks_per_node) {
  return "name: gang\nresources: {nodes: " + std::to_string(nodes) +
         ", ranks_per_node: " + std::to_string(ranks_per_node) +
         "}\nworkdir: /jobs\ntrain:\n  model: {path: model}\n  data: {train: train.jsonl}\n"
         "  schedule: {max_steps: 100}\n";
}

}  // namespace muster
