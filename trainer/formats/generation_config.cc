#include "trainer/formats/generation_config.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "common/base/files.h"
#include "common/base/json.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kEos[] = "eos_token_id";

// What transformers makes of config.json where there is no generation_config.json.
Json DerivedFrom(const ModelConfig& config) {
  const Json source = Json::parse(config.raw_json, nullptr, /*allow_exceptions=*/false);
  Json derived = Json::object();
  for (const char* key : {"bos_token_id", kEos, "pad_token_id"}) {
    if (source.is_object() && source.contains(key) && !source[key].is_null()) {
      derived[key] = source[key];
    }
  }
  return derived;
}

// One id, a list of them, or none.
bool EndsAt(const Json& file, std::int32_t id) {
  const auto ends = file.find(kEos);
  if (ends == file.end()) return false;
  return ends->is_array() ? std::find(ends->begin(), ends->end(), Json(id)) != ends->end()
                          : *ends == Json(id);
}

}  // namespace

Result<std::string> GenerationConfigWithEnds(const std::string& model_dir,
                                             const ModelConfig& config,
                                             const std::vector<std::int32_t>& ids) {
  const std::string path = model_dir + "/" + kGenerationConfig;
  std::error_code error;
  Json file;
  if (std::filesystem::exists(path, error)) {
    MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    file = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!file.is_object()) return InvalidArgument(path + " holds no JSON object");
  } else {
    file = DerivedFrom(config);
  }
  if (std::all_of(ids.begin(), ids.end(), [&](std::int32_t id) { return EndsAt(file, id); }))
    return std::string();
  std::vector<std::int32_t> ends = config.eos_token_ids;
  for (const std::int32_t id : ids)
    if (std::find(ends.begin(), ends.end(), id) == ends.end()) ends.push_back(id);
  file[kEos] = ends;
  return file.dump(2) + "\n";
}

}  // namespace muster
