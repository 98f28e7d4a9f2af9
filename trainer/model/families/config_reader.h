// ConfigReader: the fields of a config.json, read one by one; the first thing that is wrong is
// kept, with its name.
//
// Private to the families: it drags nlohmann-json along. One object per text; one thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/status.h"

namespace muster {

// Reads keys of one JSON object; remembers the first thing that is wrong and names it.
class ConfigReader {
 public:
  static constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;

  ConfigReader(const nlohmann::json& object, std::string origin)
      : object_(object), origin_(std::move(origin)) {}

  // A key that is absent or null counts as not given.
  const nlohmann::json* Find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  // Null is a value of its own to some keys: MistralConfig takes it for "none", and puts its
  // default where the key is absent.
  bool IsNull(const char* key) const {
    const auto it = object_.find(key);
    return it != object_.end() && it->is_null();
  }

  void ReadDimension(const char* key, std::int64_t max, std::int64_t* out) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number_integer()) return Fail(key, "is " + value->dump() + ", not an integer");
    // An unsigned value beyond 63 bits would wrap to a negative one here and is refused as such.
    const auto number = value->get<std::int64_t>();
    if (number < 1 || number > max)
      return Fail(key,
                  "is " + value->dump() + "; it must lie between 1 and " + std::to_string(max));
    *out = number;
  }

  // As ReadDimension, of a number of positions or layers.
  void ReadPositions(const char* key, std::int64_t* out) { ReadDimension(key, kMaxPositions, out); }

  void RequireDimension(const char* key, std::int64_t max, std::int64_t* out) {
    if (Find(key) == nullptr) return Fail(key, "is missing");
    ReadDimension(key, max, out);
  }

  void ReadPositive(const char* key, double* out) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_number()) return Fail(key, "is " + value->dump() + ", not a number");
    const auto number = value->get<double>();
    if (!(number > 0) || !std::isfinite(number))
      return Fail(key, "is " + value->dump() + "; it must be greater than 0");
    *out = number;
  }

  void ReadBool(const char* key, bool* out) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Fail(key, "is " + value->dump() + ", not true or false");
    *out = value->get<bool>();
  }

  void ReadString(const char* key, std::string* out) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Fail(key, "is " + value->dump() + ", not a string");
    *out = value->get<std::string>();
  }

  // One token id or a list of them, all within the vocabulary.
  void ReadTokenIds(const char* key, std::int64_t vocab_size, std::vector<std::int32_t>* out) {
    const nlohmann::json* value = Find(key);
    if (value == nullptr) return;
    for (const nlohmann::json& id : value->is_array() ? *value : nlohmann::json::array({*value})) {
      if (!id.is_number_integer()) return Fail(key, "holds " + id.dump() + ", not a token id");
      const auto number = id.get<std::int64_t>();
      if (number == -1) continue;  // the usual spelling of "none"
      if (number < 0 || number >= vocab_size)
        return Fail(key, "holds " + id.dump() +
                             ", but the ids of this model end before vocab_size " +
                             std::to_string(vocab_size));
      if (std::find(out->begin(), out->end(), number) == out->end())
        out->push_back(static_cast<std::int32_t>(number));
    }
  }

  void Fail(const std::string& key, const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument(origin_ + ": " + key + " " + what);
  }

  void Refuse(const std::string& what) {
    if (status_.ok()) status_ = Unimplemented(origin_ + ": " + what);
  }

  // What has gone wrong in an object within this one.
  void Take(const Status& status) {
    if (status_.ok()) status_ = status;
  }

  const Status& status() const { return status_; }
  const std::string& origin() const { return origin_; }

 private:
  const nlohmann::json& object_;
  std::string origin_;
  Status status_;
};

}  // namespace muster
