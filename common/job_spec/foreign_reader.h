// What the readers of foreign configurations share: a file as a flat list of keys, and a table that
// says what becomes of each.
//
// Value types; one thread. Private to common/job_spec.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/foreign_settings.h"

namespace muster {

// A scalar or an empty container of the file.
struct ForeignEntry {
  std::string key;   // dotted
  std::string text;  // of the scalar; null and empty containers: ""
  int line = 0;

  std::string lower() const;
  bool is(std::string_view word) const { return lower() == word; }
  std::optional<bool> boolean() const;  // also accelerate's 'yes' and 'no'
  std::optional<double> number() const;
  std::optional<std::int64_t> count() const;  // a whole number from 1 to 1e9
};

// Whether two values of a key are one: "1" and "1.0".
bool IsSameValue(const std::string& a, const std::string& b);

class ForeignReader;

// What becomes of a key. One of: `map` takes it over; `only` lists the values that mean nothing
// here, all others are refused with `note`; neither: it means nothing, whatever its value.
struct ForeignRule {
  std::string_view key;  // dotted; ends with ".*" for a whole section
  std::string_view note;
  std::string_view only = {};  // "false|no|", lower case; the last one here is nothing at all
  void (*map)(ForeignReader& reader, const ForeignEntry& entry) = nullptr;
};

// Of accelerate_config.cc and deepspeed_config.cc; the first that matches a key counts.
std::span<const ForeignRule> AccelerateRules();
std::span<const ForeignRule> DeepSpeedRules();

// With `examines`, keys that cannot be had are in `refusals` of the result and are no failure.
Result<ForeignConfig> ReadAccelerate(std::string_view text, std::string_view file, bool examines);
Result<ForeignConfig> ReadDeepSpeed(std::string_view text, std::string_view file, bool examines);

class ForeignReader {
 public:
  explicit ForeignReader(std::string_view file) { config_.file = std::string(file); }

  // Applies the rules to every key of the file; the first failure is the result, unless it
  // examines.
  Result<ForeignConfig> Read(std::string_view text, std::span<const ForeignRule> rules,
                             bool examines);

  // For rules and for what follows from several keys at once. Setting a key that another entry has
  // set to another value refuses the entry.
  void Set(const std::string& key, const std::string& value, const ForeignEntry& from,
           const std::string& unless = {});
  void Note(const ForeignEntry& entry, std::string_view note);
  void Refuse(const ForeignEntry& entry, const std::string& why);
  void SetBoolean(const std::string& key, const ForeignEntry& entry);
  // A whole number from 1 on.
  void SetCount(const std::string& key, const ForeignEntry& entry, const std::string& unless = {});
  void SetNumber(const std::string& key, const ForeignEntry& entry);
  // Null where the file has no such key, or says nothing with it.
  const ForeignEntry* Find(std::string_view key) const;
  // Also where it says "auto".
  bool Has(std::string_view key) const;
  const std::vector<ForeignEntry>& entries() const { return entries_; }
  ForeignConfig& config() { return config_; }

 private:
  Status Flatten(std::string_view text);
  void Apply(const ForeignEntry& entry, std::span<const ForeignRule> rules);

  ForeignConfig config_;
  std::vector<ForeignEntry> entries_;
};

}  // namespace muster
