#include "worker/allocation/auto_task.h"

#include <cctype>

namespace muster::worker {
namespace {

constexpr std::size_t kMaxName = 63;

}  // namespace

std::string AsName(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '.') c = '_';
  if (text.size() > kMaxName) text.erase(0, text.size() - kMaxName);
  if (text.front() == '.') text.front() = '_';
  return text;
}

AutoTask TaskOfSlurm(const slurm::Allocation& allocation) {
  const std::string id = std::to_string(allocation.job_id);
  const std::string cluster = allocation.cluster.empty() ? "slurm" : allocation.cluster;
  return {.allocation = AsName(cluster + "-" + id),
          .run = allocation.restart_count,
          .step = allocation.step,
          .nodes = allocation.nodes,
          .node_id = allocation.node_id,
          .state_name = "slurm-" + id,
          .local_name =
              id + "-" + std::to_string(allocation.restart_count) + "-" + allocation.node_name,
          .tmp_dir = allocation.tmp_dir,
          // All tasks know srun's address.
          .route_to =
              allocation.launch_address.empty() ? allocation.comm_host : allocation.launch_address,
          .cpus = allocation.cpus_on_node,
          .gpus = allocation.visible_gpus ? static_cast<int>(allocation.visible_gpus->size())
                                          : allocation.gpus_on_node,
          .may_lack_gpus = allocation.het_size > 0,
          .switches = allocation.switches,
          .words = {.more_nodes = "ask sbatch for --nodes=",
                    .more_gpus = "ask sbatch for --gpus-per-node=",
                    .no_gpus = "Slurm has given this task none",
                    .to_logs = "--slurm-job " + allocation.ref().text()}};
}

}  // namespace muster::worker
