// The transports of a gang's data on this node, and why: InfiniBand, RoCE, EFA or sockets between
// nodes, NVLink or PCIe between the GPUs of one.
//
// NCCL decides at its start and reports it only on request; an unplugged cable, a table without the
// right entry or a missing module makes training several times slower without an error. This report
// predicts the choice by NCCL's documented rules, with what to do about it. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "worker/fabric/fabric_facts.h"

namespace muster::worker {

struct TransportFinding {
  bool is_problem = false;  // makes it slower, or not work at all
  std::string text;         // what, why, and what to do

  friend bool operator==(const TransportFinding&, const TransportFinding&) = default;
};

struct TransportReport {
  std::string between_nodes;  // "InfiniBand, 8 ports of 200 Gb/s (mlx5_0 to mlx5_7)"
  std::string within_node;    // "NVLink, 18 links on each of 8 GPUs"; empty: one GPU at most
  std::vector<TransportFinding> findings;

  // At most kMaxTransportLines lines of at most kMaxTransportLineBytes, problems first.
  std::vector<std::string> Lines() const;
  int problems() const;
};

inline constexpr std::size_t kMaxTransportLines = 32;
inline constexpr std::size_t kMaxTransportLineBytes = 400;

TransportReport MakeTransportReport(const FabricFacts& facts);

}  // namespace muster::worker
