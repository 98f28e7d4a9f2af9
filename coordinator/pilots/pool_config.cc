#include "coordinator/pilots/pool_config.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "common/job_spec/yaml_reader.h"
#include "common/job_spec/yaml_text.h"
#include "common/net/ip_address.h"
#include "common/slurm/sbatch_options.h"

namespace muster {
namespace {

constexpr int kMaxKeys = 4096;
constexpr int kMaxNodes = 65536;

// Options that the pool itself decides.
constexpr const char* kOwnOptions[] = {"nodes",    "ntasks",    "ntasks-per-node", "time",
                                       "nodelist", "exclude",   "partition",       "job-name",
                                       "comment",  "output",    "requeue",         "no-requeue",
                                       "array",    "open-mode", "signal"};

void CheckOptions(MapReader& file, const PoolConfig& config) {
  const auto options = slurm::SbatchOptions::Parse(config.options);
  if (!options.ok()) return file.Error("options", options.status().message());
  for (const char* own : kOwnOptions)
    if (options->Has({own}))
      file.Error("options", "--" + std::string(own) +
                                " is the pool's own; the other keys of this file say such things");
  for (const auto& option : options->batch())
    if (const auto line = slurm::Directive(option); !line.ok())
      file.Error("options", line.status().message());
}

void ReadSizes(MapReader& file, PoolConfig* out) {
  file.Require("max_nodes", "say how many nodes there may be at most, such as max_nodes: 8");
  file.Integer("min_nodes", {0, kMaxNodes}, &out->min_nodes);
  file.Integer("max_nodes", {1, kMaxNodes}, &out->max_nodes);
  file.Integer("spares", {0, kMaxNodes}, &out->spares);
  file.Integer("nodes_per_pilot", {1, 1024}, &out->nodes_per_pilot);
  file.Integer("max_pending", {1, 1000}, &out->max_pending);
  file.Integer("submits_per_minute", {1, 1000}, &out->submits_per_minute);
  if (out->min_nodes > out->max_nodes) file.Error("min_nodes", "must not be more than max_nodes");
  if (out->nodes_per_pilot > out->max_nodes)
    file.Error("nodes_per_pilot", "must not be more than max_nodes");
}

void ReadTimes(MapReader& file, PoolConfig* out) {
  file.Seconds("idle_timeout", &out->idle_timeout_seconds);
  file.Seconds("time_limit", &out->time_limit_seconds);
  file.Seconds("stop_lead", &out->stop_lead_seconds);
  file.Seconds("start_timeout", &out->start_timeout_seconds);
  file.Seconds("orphan_after", &out->orphan_seconds);
  file.Seconds("term_grace", &out->term_grace_seconds);
  if (out->time_limit_seconds > 0 && out->stop_lead_seconds * 3 > out->time_limit_seconds)
    file.Error("stop_lead",
               "must be a third of time_limit at most, or pilots do nothing but leave");
}

void ReadNode(MapReader& file, std::optional<NodeInventory>* out) {
  auto map = file.Map("node");
  if (!map) return;
  NodeInventory& node = out->emplace();
  int gpus = 0;
  std::int64_t memory = 0;
  std::int64_t gpu_memory = 0;
  Device gpu;
  map->Integer("gpus", {0, kMaxDevicesPerNode}, &gpus);
  map->Text("gpu_kind", &gpu.kind);
  map->Bytes("gpu_memory", &gpu_memory);
  map->Integer("cpus", {1, 65536}, &node.cpus);
  map->Bytes("memory", &memory);
  gpu.memory_bytes = static_cast<std::uint64_t>(gpu_memory);
  node.memory_bytes = static_cast<std::uint64_t>(memory);
  for (int i = 0; i < gpus; ++i) {
    gpu.id = std::to_string(i);
    node.devices.push_back(gpu);
  }
  for (const MapReader::Entry& label : map->TextMap("labels")) node.labels[label.name] = label.text;
  map->Finish();
}

void ReadPool(MapReader& file, PoolConfig* out) {
  ReadSizes(file, out);
  ReadTimes(file, out);
  file.Text("partition", &out->partition);
  file.TextList("options", &out->options);
  file.TextList("setup", &out->setup);
  file.Text("directory", &out->directory);
  file.Text("coordinator", &out->coordinator);
  file.Text("worker", &out->worker);
  file.Integer("slots", {1, 4096}, &out->slots);
  file.Text("interface", &out->interface);
  file.TextList("worker_arguments", &out->worker_arguments);
  ReadNode(file, &out->node);
  if (!out->directory.empty() && out->directory.front() != '/')
    file.Error("directory", "must be an absolute path, which all nodes see");
  if (!out->coordinator.empty())
    if (const Status status = CheckDialBack(out->coordinator); !status.ok())
      file.Error("coordinator", status.message());
  CheckOptions(file, *out);
  file.Finish();
}

}  // namespace

int PoolConfig::declared_slots() const {
  constexpr int kAny = 4096;
  if (slots > 0) return slots;
  if (!node->devices.empty()) return static_cast<int>(node->devices.size());
  return node->cpus > 0 ? node->cpus : kAny;
}

Status CheckDialBack(const std::string& coordinator) {
  const std::size_t colon = coordinator.rfind(':');
  const auto address =
      IpAddress::Parse(colon == std::string::npos ? "" : coordinator.substr(0, colon));
  if (address.ok() && !address->is_loopback() && !address->is_unspecified()) return OkStatus();
  return InvalidArgument(
      coordinator +
      (!address.ok() ? " is not IP:PORT, and nodes do not resolve names"
       : address->is_unspecified()
           ? " means every address of a machine, so a node that dials it calls itself"
           : " is this machine's own loopback, where a node finds only itself") +
      "; give IP:PORT as the nodes reach the coordinator, by coordinator in pilots.yaml or by "
      "--tls-listen");
}

Result<PoolConfig> ParsePoolConfig(std::string_view yaml, const std::string& name) {
  try {
    MUSTER_ASSIGN_OR_RETURN(const YAML::Node document,
                            LoadYaml(yaml, name, {"file of pilots", kMaxKeys}));
    if (!document.IsMap())
      return InvalidArgument(name + ":1: expected one map of keys such as max_nodes: 8");
    SpecErrors errors(name);
    MapReader file(&errors, document, "");
    PoolConfig config;
    ReadPool(file, &config);
    MUSTER_RETURN_IF_ERROR(errors.status());
    return config;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(name + ":" + std::to_string(line) + ": is no valid YAML: " + error.msg);
  }
}

}  // namespace muster
