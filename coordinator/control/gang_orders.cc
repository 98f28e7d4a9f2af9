#include "coordinator/control/gang_orders.h"

#include <algorithm>
#include <utility>

#include "coordinator/control/checkpoints.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/scheduler/failure_domains.h"

namespace muster::control {

std::vector<std::string> DomainsOf(const AttemptRecord& attempt,
                                   const std::map<NodeName, NodeEntry>& nodes) {
  std::vector<std::string> domains;
  for (const NodeName& name : attempt.nodes) {
    const auto node = nodes.find(name);
    domains.push_back(node == nodes.end() ? "" : node->second.record.domain());
  }
  return domains;
}

void SendPrepare(Transaction& tx, JobEntry& job, int node_rank) {
  const AttemptRecord& attempt = job.attempt();
  Prepare prepare;
  prepare.job = job.record.id;
  prepare.job_name = job.record.name;
  prepare.generation = attempt.generation;
  prepare.spec_yaml = job.record.spec_yaml;
  prepare.output_dir = job.record.output_dir;
  prepare.account = AccountOf(tx.state, job.record);
  // Ranks lie block by block, by node rank.
  for (const RankRecord& rank :
       std::ranges::equal_range(attempt.ranks, node_rank, {}, &RankRecord::node_rank))
    prepare.ranks.push_back({rank.rank, rank.local_rank});
  prepare.spare = job.gang->nodes[node_rank].spare;
  prepare.hosts_master = node_rank == 0;
  if (prepare.hosts_master) prepare.master_bind_address = attempt.master_address;
  if (job.spec.train) prepare.standbys = job.spec.restart.standbys;
  // Who takes a shared spare gets its devices then; until then preemptible work may have them.
  const bool shared = prepare.spare && job.spec.resources.share_spares;
  if (!shared) prepare.devices = DevicesAt(attempt, static_cast<std::size_t>(node_rank));
  tx.Send(job.gang->nodes[node_rank].name, std::move(prepare));
}

void SendLaunch(Transaction& tx, JobEntry& job, int first_node, int last_node) {
  const AttemptRecord& attempt = job.attempt();
  Launch launch;
  launch.job = job.record.id;
  launch.generation = attempt.generation;
  launch.master_address = attempt.master_address;
  launch.master_port = attempt.master_port;
  launch.rendezvous_token = attempt.rendezvous_token;
  launch.world_size = WorldSize(job);
  launch.node_count = static_cast<int>(attempt.nodes.size());
  launch.local_world_size = job.spec.resources.ranks_per_node;
  launch.restart_count = static_cast<int>(attempt.generation - 1);
  // torchrun counts the attempts after the first one.
  launch.max_restarts = std::max(0, job.spec.restart.max_without_progress - 1);
  for (const CheckpointRecord& point : ResumePoints(job)) launch.resume.push_back(InfoOf(point));
  launch.buddy_ring = BuddyRing(DomainsOf(attempt, tx.state.nodes));
  for (int n = first_node; n < last_node; ++n) {
    launch.node_rank = n;
    // Rank 0 chooses among them; the other nodes need only the names of directories to keep.
    if (n > 0) {
      for (CheckpointInfo& checkpoint : launch.resume) checkpoint.shards.clear();
    }
    tx.Send(attempt.nodes[n], launch);
  }
}

void SendAbort(Transaction& tx, JobEntry& job, int node_rank, bool eager) {
  const Gang& gang = *job.gang;
  const Aborting& aborting = *In<Aborting>(gang);
  Abort abort{.job = job.record.id,
              .generation = job.attempt().generation,
              .reason = aborting.reason,
              .grace_seconds = ToSeconds(aborting.grace)};
  if (aborting.survivors) {
    // A rank that is called out of its collectives parks within this time, or is killed.
    constexpr Duration kParkTime = std::chrono::seconds(1);
    abort.park_seconds = ToSeconds(kParkTime);
    abort.kill_ranks.assign(gang.kill_ranks.begin(), gang.kill_ranks.end());
    if (node_rank == 0) abort.next_master_bind_address = job.attempt().master_address;
  }
  tx.Send(gang.nodes[node_rank].name, std::move(abort), eager);
}

void SendStop(Transaction& tx, JobEntry& job, const GangNode& member) {
  if (member.spare || member.quiesced) return;
  tx.Send(member.name, Stop{.job = job.record.id,
                            .generation = job.attempt().generation,
                            .reason = StopOf(*job.gang)->reason});
}

}  // namespace muster::control
