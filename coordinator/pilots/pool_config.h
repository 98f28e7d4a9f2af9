// PoolConfig: the configuration of the pool of pilot jobs, from DIR/pilots.yaml.
//
// docs/pilots.md describes the keys; each has the name of its member. Plain values; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/resources/node_inventory.h"

namespace muster {

struct PoolConfig {
  int min_nodes = 0;
  int max_nodes = 0;  // of pilots that are not being replaced; required
  int spares = 0;     // idle nodes beyond what jobs need
  int nodes_per_pilot = 1;
  std::int64_t idle_timeout_seconds = 600;
  std::int64_t time_limit_seconds = 0;       // of a pilot job; 0: the partition's
  std::int64_t stop_lead_seconds = 0;        // 0: twice the longest checkpoint and a minute
  std::int64_t start_timeout_seconds = 300;  // from a pilot's start until its nodes are connected
  std::int64_t orphan_seconds = 600;         // without a coordinator, until a pilot ends itself
  std::int64_t term_grace_seconds = 25;      // Slurm's pause between SIGTERM and SIGKILL
  int max_pending = 16;
  int submits_per_minute = 20;

  std::string partition;
  std::vector<std::string> options;  // of sbatch, as they are
  std::vector<std::string> setup;    // lines of the script before srun

  std::string directory;                 // visible to all nodes; empty: DIR/pilots
  std::string coordinator;               // IP:PORT; empty: where --tls-listen listens
  std::string worker = "muster-worker";  // as the nodes find it
  int slots = 0;                         // of a node; 0: the worker's default
  std::string interface;
  std::vector<std::string> worker_arguments;
  std::optional<NodeInventory> node;  // what each node has, by its declaration; empty: anything

  // That a declared node has.
  int declared_slots() const;

  friend bool operator==(const PoolConfig&, const PoolConfig&) = default;
};

// Whether nodes can dial `coordinator`: kInvalidArgument for 0.0.0.0, :: and loopback, which would
// address the node itself, and for names, which are not resolved.
Status CheckDialBack(const std::string& coordinator);

// kInvalidArgument "FILE:LINE: KEY: what is wrong": nothing is used from an invalid file.
Result<PoolConfig> ParsePoolConfig(std::string_view yaml, const std::string& file);

}  // namespace muster
