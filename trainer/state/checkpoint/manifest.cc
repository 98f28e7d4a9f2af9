#include "trainer/state/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "common/base/json.h"
#include "common/base/json_integer.h"
#include "common/base/regular_file.h"
#include "common/base/version_table.h"

namespace muster {
namespace {

using nlohmann::json;

bool ParseNumber(std::string_view text, std::int64_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0;
}

bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

json ToJson(const CheckpointManifest& manifest) {
  json shards = json::array();
  for (const ShardRecord& shard : manifest.shards) {
    shards.push_back({{"rank", shard.rank},
                      {"file", shard.file},
                      {"bytes", shard.bytes},
                      {"checksum", shard.checksum}});
  }
  json object = {{"format_version", kManifests.max},
                 {"job_id", manifest.job_id},
                 {"step", manifest.step},
                 {"generation", manifest.generation},
                 {"directory", manifest.directory},
                 {"world_size", manifest.world_size},
                 {"shards", std::move(shards)}};
  if (manifest.eval_loss) object["eval_loss"] = *manifest.eval_loss;
  return object;
}

// A number, or a decimal string as protobuf's JSON mapping writes 64-bit values.
template <typename T>
T Integer(const json& object, const char* key) {
  const json& value = object.at(key);
  if (!value.is_string()) return IntegerOf<T>(value);
  std::int64_t number = 0;
  if (!ParseNumber(value.get_ref<const std::string&>(), &number))
    throw json::other_error::create(501, std::string(key) + " is not a number", nullptr);
  if (!std::in_range<T>(number))
    throw json::other_error::create(501, std::string(key) + " is out of range", nullptr);
  return static_cast<T>(number);
}

// The one place that knows what makes a manifest consistent.
Status Check(const CheckpointManifest& manifest) {
  Step step = 0;
  Generation generation = 0;
  if (!ParseCheckpointDirectoryName(manifest.directory, &step, &generation)) {
    return DataLoss("\"" + manifest.directory + "\" is not the name of a checkpoint directory");
  }
  if (step != manifest.step || generation != manifest.generation) {
    return DataLoss("step and generation differ from those in the name " + manifest.directory);
  }
  if (manifest.world_size < 1 ||
      manifest.shards.size() != static_cast<std::size_t>(manifest.world_size)) {
    return DataLoss("world size " + std::to_string(manifest.world_size) + " but " +
                    std::to_string(manifest.shards.size()) + " shards");
  }
  for (std::size_t i = 0; i < manifest.shards.size(); ++i) {
    if (manifest.shards[i].rank != static_cast<int>(i)) {
      return DataLoss("rank " + std::to_string(i) + " has no shard, or more than one");
    }
    if (!IsPlainFileName(manifest.shards[i].file)) {
      return DataLoss("\"" + manifest.shards[i].file + "\" is not a plain file name");
    }
  }
  return OkStatus();
}

CheckpointManifest FromJson(const json& object) {
  CheckpointManifest manifest;
  manifest.job_id = object.value("job_id", std::string());
  manifest.step = Integer<Step>(object, "step");
  manifest.generation = Integer<Generation>(object, "generation");
  manifest.directory = object.at("directory").get<std::string>();
  manifest.world_size = Integer<int>(object, "world_size");
  if (const auto loss = object.find("eval_loss"); loss != object.end() && loss->is_number())
    manifest.eval_loss = loss->get<double>();
  for (const json& shard : object.at("shards")) {
    manifest.shards.push_back({Integer<int>(shard, "rank"), shard.at("file").get<std::string>(),
                               Integer<std::uint64_t>(shard, "bytes"),
                               shard.at("checksum").get<std::string>()});
  }
  std::sort(manifest.shards.begin(), manifest.shards.end(),
            [](const ShardRecord& a, const ShardRecord& b) { return a.rank < b.rank; });
  return manifest;
}

Result<CheckpointManifest> Checked(const json& object) {
  try {
    const int format = IntegerOr(object, "format_version", 1);
    if (!kManifests.contains(format)) {
      return DataLoss("manifest format " + std::to_string(format) + " is not known, only " +
                      RangeText(kManifests));
    }
    CheckpointManifest manifest = FromJson(object);
    MUSTER_RETURN_IF_ERROR(Check(manifest));
    return manifest;
  } catch (const json::exception& error) {
    return DataLoss(std::string("not a manifest: ") + error.what());
  }
}

}  // namespace

std::string CheckpointDirectoryName(Step step, Generation generation) {
  char name[64];
  std::snprintf(name, sizeof(name), "step-%08lld-g%lld", static_cast<long long>(step),
                static_cast<long long>(generation));
  return name;
}

bool ParseCheckpointDirectoryName(std::string_view name, Step* step, Generation* generation) {
  constexpr std::string_view kPrefix = "step-";
  if (!name.starts_with(kPrefix)) return false;
  const std::size_t mark = name.find("-g", kPrefix.size());
  if (mark == std::string_view::npos) return false;
  return ParseNumber(name.substr(kPrefix.size(), mark - kPrefix.size()), step) &&
         ParseNumber(name.substr(mark + 2), generation) &&
         CheckpointDirectoryName(*step, *generation) == name;
}

std::string ManifestToJson(const CheckpointManifest& manifest) {
  return ToJson(manifest).dump(1) + "\n";
}

std::string ManifestListToJson(const std::vector<CheckpointManifest>& manifests) {
  json list = json::array();
  for (const CheckpointManifest& manifest : manifests) list.push_back(ToJson(manifest));
  return list.dump(1) + "\n";
}

Result<CheckpointManifest> ManifestFromJson(std::string_view text) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded() || !object.is_object()) return DataLoss("not a JSON object");
  return Checked(object);
}

Result<std::vector<CheckpointManifest>> ManifestListFromJson(std::string_view text) {
  const json list = json::parse(text, nullptr, false);
  if (list.is_discarded() || !list.is_array()) return DataLoss("not a JSON array of manifests");
  std::vector<CheckpointManifest> manifests;
  for (const json& object : list) {
    MUSTER_ASSIGN_OR_RETURN(CheckpointManifest manifest, Checked(object));
    manifests.push_back(std::move(manifest));
  }
  return manifests;
}

Result<CheckpointManifest> ReadManifest(const std::string& checkpoints_dir,
                                        const std::string& directory) {
  const std::string path = checkpoints_dir + "/" + directory + "/" + kManifestFile;
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path));
  auto manifest = ManifestFromJson(text);
  if (!manifest.ok()) return manifest.status().WithContext(path);
  if (manifest->directory != directory) {
    return DataLoss(path + ": it is the manifest of " + manifest->directory);
  }
  return manifest;
}

const CheckpointManifest* BestOf(const std::vector<CheckpointManifest>& manifests) {
  const CheckpointManifest* best = nullptr;
  for (const CheckpointManifest& each : manifests) {
    if (each.eval_loss && (best == nullptr || *each.eval_loss < *best->eval_loss)) best = &each;
  }
  return best;
}

Result<FoundManifests> FindManifests(const std::string& checkpoints_dir) {
  namespace fs = std::filesystem;
  FoundManifests found;
  std::error_code error;
  const fs::file_status status = fs::status(checkpoints_dir, error);
  if (status.type() == fs::file_type::not_found) return found;
  fs::directory_iterator entries(checkpoints_dir, error);
  if (error) return ErrnoStatus(error.value(), "list " + checkpoints_dir);
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    Step step = 0;
    Generation generation = 0;
    if (!ParseCheckpointDirectoryName(name, &step, &generation)) continue;
    found.newest_generation = std::max(found.newest_generation, generation);
    auto manifest = ReadManifest(checkpoints_dir, name);
    if (manifest.ok()) {
      found.manifests.push_back(*std::move(manifest));
    } else if (manifest.status().code() != StatusCode::kNotFound) {
      found.unreadable.push_back(manifest.status());
    }
    if (error) break;
  }
  if (error) return ErrnoStatus(error.value(), "list " + checkpoints_dir);
  std::sort(found.manifests.begin(), found.manifests.end(),
            [](const CheckpointManifest& a, const CheckpointManifest& b) {
              return std::tie(a.generation, a.step) > std::tie(b.generation, b.step);
            });
  return found;
}

}  // namespace muster
