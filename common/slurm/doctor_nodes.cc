#include "common/slurm/doctor_nodes.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/base/json.h"
#include "common/slurm/hostlist.h"

namespace muster::slurm {
namespace {

using nlohmann::json;

constexpr char kHead[] = "{\"muster_probe\":1,";
// A stop is planned a minute ahead of the allocation's end, by the node's own clock.
constexpr std::int64_t kLargeSkewMillis = 30'000;
constexpr std::int64_t kSkewMillis = 1'000;
// Sockets, credentials, logs of daemons.
constexpr std::int64_t kLittleTemporaryMib = 64;

constexpr char kShareChange[] =
    "put the job's output on a file system that all nodes mount (NFS, Lustre, GPFS): "
    "train.output.dir, "
    "workdir, or --state";

Finding JudgeAnswers(int node_count, const std::vector<NodeProbe>& probes) {
  std::vector<std::string> silent;
  if (!probes.empty()) silent = probes.front().step;
  for (const NodeProbe& probe : probes) std::erase(silent, probe.node);
  const int answered = static_cast<int>(probes.size());
  if (silent.empty() && answered >= node_count)
    return {"nodes", Verdict::kOk, "all " + std::to_string(answered) + " nodes answer", ""};
  return {"nodes", Verdict::kFail,
          std::to_string(answered) + " of " + std::to_string(node_count) + " nodes answer" +
              (silent.empty() ? "" : "; silent: " + CompressHostlist(silent)),
          "look at sinfo -R, and try without these nodes (--exclude)"};
}

Finding JudgeShared(const std::vector<NodeProbe>& probes) {
  for (const NodeProbe& probe : probes) {
    if (!probe.shared_error.empty())
      return {"shared-path", Verdict::kFail, probe.node + ": " + probe.shared_error, kShareChange};
    if (!probe.unseen.empty())
      return {"shared-path", Verdict::kFail,
              probe.node + " does not see the files of " + CompressHostlist(probe.unseen),
              kShareChange};
  }
  return {"shared-path", Verdict::kOk, "each node sees the files of all others", ""};
}

Finding JudgeExclusive(const std::vector<NodeProbe>& probes) {
  const auto count = [&probes](bool NodeProbe::*made) {
    return std::count_if(probes.begin(), probes.end(),
                         [made](const NodeProbe& probe) { return probe.*made; });
  };
  const auto files = count(&NodeProbe::made_exclusive_file), links = count(&NodeProbe::made_link);
  if (files == 1 && links == 1)
    return {"exclusive-files", Verdict::kOk,
            "of several nodes one makes a link, as the journal needs it, or an exclusive file", ""};
  return {"exclusive-files", Verdict::kFail,
          std::to_string(files) + " nodes made the same exclusive file and " +
              std::to_string(links) + " the same link, where one each should have",
          "mount the file system with close-to-open consistency and without local locks (NFS 3 or "
          "later), or use another one"};
}

Finding JudgeClocks(const std::vector<NodeProbe>& probes) {
  std::int64_t spread = 0;
  std::string pair;
  for (const NodeProbe& probe : probes)
    for (const auto& [other, offset] : probe.clock_offset)
      if (std::llabs(offset) > spread) {
        spread = std::llabs(offset);
        pair = probe.node + " and " + other;
      }
  if (pair.empty()) return {"clocks", Verdict::kOk, "no two clocks differ", ""};
  const std::string what =
      "the clocks of " + pair + " differ by " + std::to_string(spread) + " ms, the most of all";
  if (spread > kLargeSkewMillis)
    return {"clocks", Verdict::kFail,
            what + ": a node may take the end of the allocation for later than it is",
            "run a time service (chrony) on all nodes"};
  if (spread > kSkewMillis)
    return {"clocks", Verdict::kWarn, what + ": logs of several nodes are hard to read together",
            "look at the nodes' time service"};
  return {"clocks", Verdict::kOk, what, ""};
}

Finding JudgeReach(const std::vector<NodeProbe>& probes) {
  for (const NodeProbe& probe : probes)
    if (!probe.unreachable.empty())
      return {"ports", Verdict::kFail,
              probe.node + " could not connect to " + CompressHostlist(probe.unreachable) +
                  " at a free port",
              "open all TCP ports between compute nodes, or choose another network: doctor "
              "--interface NAME tries it, --worker-arg=--interface=NAME has jobs use it"};
  return {"ports", Verdict::kOk, "nodes reach each other at any port", ""};
}

Finding JudgeGpus(const std::vector<NodeProbe>& probes) {
  for (const NodeProbe& probe : probes) {
    const int given = probe.slurm_gpus;
    if (given == 0) continue;
    if (probe.visible_gpus != given)
      return {"gpu-binding", Verdict::kFail,
              probe.node + ": Slurm has given " + std::to_string(given) +
                  " GPUs, and the task sees " + std::to_string(probe.visible_gpus.value_or(0)),
              "ask for --gpus-per-node and one task per node; --gpus-per-task and --gpu-bind split "
              "them"};
    if (probe.device_files > 0 && probe.device_files < given)
      return {"gpu-binding", Verdict::kFail,
              probe.node + ": the task may open " + std::to_string(probe.device_files) + " of " +
                  std::to_string(given) + " GPUs",
              "have the administrator compare gres.conf with the node's devices"};
  }
  return {"gpu-binding", Verdict::kOk, "each task sees the GPUs that its node was given", ""};
}

Finding JudgeCpus(const std::vector<NodeProbe>& probes) {
  for (const NodeProbe& probe : probes)
    if (probe.usable_cpus < probe.slurm_cpus)
      return {"cpus", Verdict::kWarn,
              probe.node + ": the task may use " + std::to_string(probe.usable_cpus) + " of " +
                  std::to_string(probe.slurm_cpus) + " CPUs",
              "give --cpu-bind=none to srun, as muster's scripts do"};
  return {"cpus", Verdict::kOk, "each task may use all CPUs that its node was given", ""};
}

Finding JudgeTemporary(const std::vector<NodeProbe>& probes) {
  for (const NodeProbe& probe : probes)
    if (probe.temporary_free_mib < kLittleTemporaryMib)
      return {"temporary", Verdict::kFail,
              probe.node + ": " + probe.temporary + " has " +
                  std::to_string(probe.temporary_free_mib) + " MiB left, or cannot be written",
              "free some, or set TMPDIR to another directory of the node"};
  return {"temporary", Verdict::kOk, "each node has room for temporary files", ""};
}

NodeProbe FromJson(const json& object) {
  NodeProbe probe;
  object.at("node").get_to(probe.node);
  object.at("step").get_to(probe.step);
  object.at("address").get_to(probe.address);
  object.at("shared_error").get_to(probe.shared_error);
  object.at("unseen").get_to(probe.unseen);
  object.at("made_exclusive_file").get_to(probe.made_exclusive_file);
  object.at("made_link").get_to(probe.made_link);
  object.at("unreachable").get_to(probe.unreachable);
  object.at("clock_offset_ms").get_to(probe.clock_offset);
  object.at("slurm_gpus").get_to(probe.slurm_gpus);
  if (!object.at("visible_gpus").is_null())
    probe.visible_gpus = object.at("visible_gpus").get<int>();
  object.at("device_files").get_to(probe.device_files);
  object.at("slurm_cpus").get_to(probe.slurm_cpus);
  object.at("usable_cpus").get_to(probe.usable_cpus);
  object.at("temporary").get_to(probe.temporary);
  object.at("temporary_free_mib").get_to(probe.temporary_free_mib);
  return probe;
}

}  // namespace

std::string ProbeLine(const NodeProbe& probe) {
  const json object = {
      {"node", probe.node},
      {"step", probe.step},
      {"address", probe.address},
      {"shared_error", probe.shared_error},
      {"unseen", probe.unseen},
      {"made_exclusive_file", probe.made_exclusive_file},
      {"made_link", probe.made_link},
      {"unreachable", probe.unreachable},
      {"clock_offset_ms", probe.clock_offset},
      {"slurm_gpus", probe.slurm_gpus},
      {"visible_gpus", probe.visible_gpus ? json(*probe.visible_gpus) : json(nullptr)},
      {"device_files", probe.device_files},
      {"slurm_cpus", probe.slurm_cpus},
      {"usable_cpus", probe.usable_cpus},
      {"temporary", probe.temporary},
      {"temporary_free_mib", probe.temporary_free_mib}};
  return kHead + object.dump(-1, ' ', false, json::error_handler_t::replace).substr(1);
}

std::vector<NodeProbe> ParseProbes(std::string_view output) {
  std::vector<NodeProbe> probes;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    const std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    if (!line.starts_with(kHead)) continue;
    try {
      probes.push_back(FromJson(json::parse(line)));
    } catch (const json::exception&) {
      // Of another release, or cut off with the step: its node counts as silent.
      continue;
    }
  }
  return probes;
}

std::vector<Finding> JudgeNodes(int node_count, const std::vector<NodeProbe>& probes) {
  std::vector<Finding> findings = {JudgeAnswers(node_count, probes)};
  if (probes.empty()) return findings;
  for (const auto& judge :
       {JudgeShared, JudgeExclusive, JudgeClocks, JudgeReach, JudgeGpus, JudgeCpus, JudgeTemporary})
    findings.push_back(judge(probes));
  return findings;
}

}  // namespace muster::slurm
