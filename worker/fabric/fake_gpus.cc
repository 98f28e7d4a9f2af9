#include "worker/fabric/fake_gpus.h"

#include <yaml-cpp/yaml.h>

#include <cstdint>

#include "common/base/ids.h"
#include "common/job_spec/yaml_reader.h"
#include "common/job_spec/yaml_text.h"

namespace muster::worker {
namespace {

constexpr int kMaxKeys = 4096;

void ReadEntry(MapReader& entry, const std::string& node, std::vector<NodeDevice>* devices) {
  int count = 1;
  std::int64_t memory = 0;
  std::string uuid, nvlink;
  Device device{.fake = true};
  entry.Integer("count", {1, kMaxDevicesPerNode}, &count);
  entry.Text("kind", &device.kind);
  entry.Bytes("memory", &memory);
  device.memory_bytes = static_cast<std::uint64_t>(memory);
  entry.Integer("numa", {0, 1023}, &device.numa_node);
  entry.AnyText("nvlink", &nvlink);
  if (!nvlink.empty()) device.link_domain = node + "/" + nvlink;
  entry.Text("uuid", &uuid);
  if (entry.Has("uuid") && !FollowsNameRule(uuid))
    entry.Error("uuid", "must be " + std::string(kNameRule));
  if (entry.Has("uuid") && count != 1) entry.Error("uuid", "names one GPU, so count must be 1");
  if (device.kind.size() > 128) entry.Error("kind", "is longer than 128 bytes");
  if (nvlink.size() > 63) entry.Error("nvlink", "is longer than 63 bytes");
  entry.Finish();
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<int>(devices->size());
    if (index >= kMaxDevicesPerNode)
      return entry.Error("count", "makes more than the " + std::to_string(kMaxDevicesPerNode) +
                                      " GPUs that a node may have");
    device.id = uuid.empty() ? "FAKE-" + node + "-" + std::to_string(index) : uuid;
    if (FindDevice(*devices, device.id) != nullptr)
      entry.Error("uuid", device.id + " is given twice");
    devices->push_back({.device = device, .cuda_name = device.id, .gpu = device.id});
  }
}

}  // namespace

Result<std::vector<NodeDevice>> ParseFakeGpus(std::string_view yaml, const std::string& name,
                                              const std::string& node) {
  try {
    MUSTER_ASSIGN_OR_RETURN(const YAML::Node document,
                            LoadYaml(yaml, name, {"file of GPUs", kMaxKeys}));
    if (!document.IsSequence() || document.size() == 0)
      return InvalidArgument(name + ":1: expected one list of GPUs such as - {count: 8}");
    SpecErrors errors(name);
    std::vector<NodeDevice> devices;
    for (const YAML::Node& node_of_file : document) {
      if (!node_of_file.IsMap()) {
        errors.Add(LineOf(node_of_file), "", "expected a map of keys such as {count: 8}");
        continue;
      }
      MapReader entry(&errors, node_of_file, "");
      ReadEntry(entry, node, &devices);
    }
    MUSTER_RETURN_IF_ERROR(errors.status());
    return devices;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(name + ":" + std::to_string(line) + ": is no valid YAML: " + error.msg);
  }
}

}  // namespace muster::worker
