#include "common/job_spec/resources_block.h"

#include <algorithm>
#include <string>

#include "common/base/byte_size.h"
#include "common/resources/node_inventory.h"

namespace muster {
namespace {

// ">=80GB" or "80GB": at least as much.
void ReadLeastMemory(MapReader& gpu, std::uint64_t* out) {
  std::string text;
  gpu.Text("memory", &text);
  if (text.empty()) return;
  std::string size = text.starts_with(">=") ? text.substr(2) : text;
  size.erase(0, size.find_first_not_of(' '));
  if (const auto bytes = ParseByteSize(size); bytes && *bytes > 0)
    *out = static_cast<std::uint64_t>(*bytes);
  else
    gpu.Error("memory", "expected the least memory of a GPU such as '>=80GB', got '" + text + "'");
}

void ReadGpus(MapReader& map, ResourceSpec* out) {
  const bool on_gpus = out->device == "cuda";
  out->gpus.per_rank = on_gpus ? 1 : 0;
  if (!on_gpus) {
    for (const char* key : {"gpus_per_rank", "gpu"})
      if (map.Has(key)) map.Error(key, "needs device: cuda; add it, or leave this out");
    return;
  }
  map.Integer("gpus_per_rank", {1, kMaxDevicesPerNode}, &out->gpus.per_rank);
  if (out->ranks_per_node * out->gpus.per_rank > kMaxDevicesPerNode)
    map.Error("gpus_per_rank", "times ranks_per_node is more than the " +
                                   std::to_string(kMaxDevicesPerNode) + " GPUs of a node");
  auto gpu = map.Map("gpu");
  if (!gpu) return;
  gpu->TextList("kind", &out->gpus.kinds);
  ReadLeastMemory(*gpu, &out->gpus.min_memory_bytes);
  gpu->Finish();
}

// A text: equal. A list: one of them. {not_in: LIST} and {exists: true|false}.
LabelRule ReadLabelRule(MapReader& labels, const std::string& key) {
  LabelRule rule{.key = key, .kind = LabelRule::Kind::kIn};
  if (!labels.CheckCharacters(key, key, /*allow_lines=*/false)) return rule;
  const YAML::Node node = *labels.Node(key);
  if (node.IsScalar()) {
    rule.values.emplace_back();
    labels.AnyText(key, &rule.values.front());
    return rule;
  }
  if (node.IsSequence()) {
    labels.TextList(key, &rule.values);
    if (rule.values.empty()) labels.Error(key, "expected a list with a value in it");
    return rule;
  }
  auto map = labels.Map(key);
  if (!map) return rule;
  if (map->Has("not_in") == map->Has("exists")) {
    labels.Error(key, "expected a value, a list of values, {not_in: LIST}, or {exists: true}");
    return rule;
  }
  bool exists = true;
  map->TextList("not_in", &rule.values);
  map->Boolean("exists", &exists);
  rule.kind = map->Has("not_in") ? LabelRule::Kind::kNotIn
              : exists           ? LabelRule::Kind::kExists
                                 : LabelRule::Kind::kAbsent;
  map->Finish();
  return rule;
}

void ReadTopology(MapReader& map, TopologyDemand* out) {
  auto topology = map.Map("topology");
  if (!topology) return;
  std::string within;
  topology->Choice("within", {{"block", "rack", "switch"}, {}}, &within);
  if (within.empty()) topology->Require("within", "give block, rack, or switch");
  out->within = within == "block"  ? TopologyLevel::kBlock
                : within == "rack" ? TopologyLevel::kRack
                                   : TopologyLevel::kSwitch;
  topology->Boolean("required", &out->required);
  topology->Finish();
}

}  // namespace

void ReadResources(MapReader& file, ResourceSpec* out) {
  auto map = file.Map("resources");
  if (!map) return;
  map->Integer("nodes", {1, kMaxClusterNodes}, &out->nodes);
  map->Integer("ranks_per_node", {1, 64}, &out->ranks_per_node);
  map->Choice("device", {{"cpu", "cuda"}, {}}, &out->device);
  std::string visible = "own";
  map->Choice("visible_gpus", {{"own", "node"}, {}}, &visible);
  out->sees_all_gpus = visible == "node";
  ReadGpus(*map, out);
  map->Integer("cpus_per_rank", {1, 1024}, &out->cpus_per_rank);
  std::int64_t memory = 0;
  map->Bytes("memory_per_rank", &memory);
  constexpr std::int64_t kMostMemory = std::int64_t{1} << 50;
  if (memory < 0 || memory > kMostMemory)
    map->Error("memory_per_rank", "must be from 0 to 1024TiB");
  else
    out->memory_per_rank = static_cast<std::uint64_t>(memory);
  map->Choice("cpu_binding", {{"auto", "none"}, {}}, &out->cpu_binding);
  static const NumberRange kPositive = {"above 0", [](double v) { return v > 0; }};
  map->Number("peak_tflops", kPositive, &out->peak_tflops);
  map->TextList("exclude", &out->exclude);
  if (auto labels = map->Map("labels"))
    for (const std::string& key : labels->Names())
      out->labels.push_back(ReadLabelRule(*labels, key));
  ReadTopology(*map, &out->topology);
  map->Seconds("time_limit", &out->time_limit_seconds);

  out->min_nodes = out->nodes;
  map->Integer("min_nodes", {1, kMaxClusterNodes}, &out->min_nodes);
  if (out->min_nodes > out->nodes) map->Error("min_nodes", "must not be more than nodes");
  map->Integer("spares", {0, kMaxClusterNodes}, &out->spares);
  map->Boolean("share_spares", &out->share_spares);
  if (out->share_spares && out->spares == 0)
    map->Error("share_spares", "needs resources.spares; say how many, or leave this out");
  map->Finish();
}

void CheckResources(MapReader& file, const JobSpec& spec) {
  if (!spec.train) return;
  if (spec.resources.sees_all_gpus)
    file.Error("resources",
               "visible_gpus: node is only for command jobs; the trainer's ranks have "
               "a GPU each");
  if (spec.resources.gpus.per_rank > 1)
    file.Error("resources",
               "gpus_per_rank above 1 is only for command jobs; each rank of the "
               "trainer has one GPU");
}

NodeDemand ResourceSpec::per_node() const {
  return {.ranks = ranks_per_node,
          .devices = gpus,
          .cpus_per_rank = cpus_per_rank,
          .memory_per_rank = memory_per_rank,
          .labels = labels,
          .topology = topology};
}

}  // namespace muster
