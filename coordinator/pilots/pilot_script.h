// The batch script of a pilot job: one muster-worker per node, which connects to the coordinator.
//
// Plain bash; muster-worker is the only program of Muster in it. On each node it waits for the
// node's join token, which the coordinator writes once Slurm has reported the nodes. It ends when
// its directory is gone, or when POOL/alive was not renewed for long. docs/pilots.md explains it.
//
// Pure functions; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/slurm/sbatch_script.h"
#include "coordinator/pilots/pool_config.h"

namespace muster {

inline constexpr char kPilotJobName[] = "muster-pilot";

struct PilotScriptRequest {
  std::string key;
  std::string pool;                  // directory of all pilots, visible to all nodes; absolute
  std::string coordinator;           // IP:PORT
  std::vector<std::string> exclude;  // nodes
};

slurm::JobPlaces PilotPlaces(const std::string& pool, const std::string& key);

// kInvalidArgument for a pool whose path a script cannot hold.
Result<std::string> RenderPilotScript(const PoolConfig& config, const PilotScriptRequest& request);

}  // namespace muster
