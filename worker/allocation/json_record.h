// Small records of JSON in a directory with several writers: an invalid record is treated as
// missing. Blocks; any thread.
#pragma once

#include <optional>
#include <string>

#include "common/base/files.h"
#include "common/base/json.h"

namespace muster::worker {

// An object; empty for a file that is missing or contains no object.
inline std::optional<nlohmann::json> ReadRecord(const std::string& path) {
  constexpr std::int64_t kMaxRecord = 64 << 10;
  const auto text = ReadFile(path, kMaxRecord);
  if (!text.ok()) return std::nullopt;
  nlohmann::json object = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  return object;
}

// A value of the type of `fallback`, or `fallback` if the key is absent or of another type.
template <typename T>
T ValueOf(const nlohmann::json& object, const char* key, const T& fallback) {
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  try {
    return found->get<T>();
  } catch (const nlohmann::json::exception&) {
    return fallback;
  }
}

}  // namespace muster::worker
