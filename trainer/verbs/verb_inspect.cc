#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/shard_file.h"
#include "trainer/formats/safetensors.h"
#include "trainer/hub/hub_id.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json TensorsJson(const SafetensorsModel& model) {
  Json tensors = Json::array();
  std::int64_t elements = 0;
  for (const std::string& name : model.names()) {
    const TensorSpec& tensor = *model.Find(name);
    elements += tensor.count();
    tensors.push_back(
        {{"name", name}, {"type", TensorTypeName(tensor.type)}, {"shape", tensor.shape}});
  }
  return {{"kind", "safetensors"}, {"elements", elements}, {"tensors", std::move(tensors)}};
}

Json ManifestJson(const CheckpointManifest& manifest) {
  Json json = Json::parse(ManifestToJson(manifest));
  json["kind"] = "checkpoint";
  return json;
}

Json ShardJson(const ShardHeader& header) {
  Json arrays = Json::array();
  for (const ShardArray& array : header.arrays) {
    arrays.push_back(
        {{"name", array.name}, {"count", array.count}, {"tensors", array.intervals.size()}});
  }
  return {{"kind", "shard"},
          {"job_id", header.job_id},
          {"generation", header.generation},
          {"rank", header.rank},
          {"world_size", header.world_size},
          {"step", header.cursor.step},
          {"samples", header.cursor.samples},
          {"tokens", header.cursor.tokens},
          {"arrays", std::move(arrays)}};
}

Result<Json> Inspect(const std::string& path) {
  if (!fs::exists(path)) {
    if (!ParseHubId(path)) return NotFound(path + ": there is no such file or directory");
    MUSTER_ASSIGN_OR_RETURN(const std::string snapshot, ResolveModel(path));
    return Inspect(snapshot);
  }
  if (fs::is_directory(path)) {
    const fs::path whole = fs::path(path).lexically_normal();
    const std::string dir = (whole.has_filename() ? whole : whole.parent_path()).string();
    if (fs::exists(dir + "/" + kManifestFile)) {
      const fs::path place(dir);
      MUSTER_ASSIGN_OR_RETURN(
          const CheckpointManifest manifest,
          ReadManifest(place.parent_path().string(), place.filename().string()));
      return ManifestJson(manifest);
    }
    MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel model, SafetensorsModel::Open(dir));
    return TensorsJson(model);
  }
  if (fs::path(path).extension() == ".shard") {
    MUSTER_ASSIGN_OR_RETURN(const ShardHeader header, ReadShardHeader(path));
    return ShardJson(header);
  }
  if (fs::path(path).extension() == ".json") {
    MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    MUSTER_ASSIGN_OR_RETURN(const CheckpointManifest manifest, ManifestFromJson(text));
    return ManifestJson(manifest);
  }
  MUSTER_ASSIGN_OR_RETURN(const SafetensorsModel model, SafetensorsModel::OpenFile(path));
  return TensorsJson(model);
}

// Scalars one per line, lists as one line per entry.
void PrintTable(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (!value.is_array()) {
      std::printf("%-12s %s\n", key.c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
    }
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_array()) continue;
    std::printf("%s (%zu)\n", key.c_str(), value.size());
    for (const Json& entry : value) {
      for (const auto& item : entry.items()) {
        const Json& field = item.value();
        std::printf("  %s",
                    field.is_string() ? field.get<std::string>().c_str() : field.dump().c_str());
      }
      std::printf("\n");
    }
  }
}

}  // namespace

int RunInspect(const InspectOptions& options) {
  const Result<Json> json = Inspect(options.path);
  if (!json.ok()) {
    std::fprintf(stderr, "muster-trainer inspect: %s\n", json.status().message().c_str());
    return kExitBadInput;
  }
  if (options.output == "json") {
    std::printf("%s\n", json->dump(2).c_str());
  } else {
    PrintTable(*json);
  }
  return kExitOk;
}

}  // namespace muster
