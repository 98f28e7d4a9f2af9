// MapReader: strict reading of one YAML map into plain values.
//
// The caller asks for each key it knows; Finish() refuses the rest. A key that is absent leaves the
// destination as it is, so defaults live in the destination. Errors go to a SpecErrors, which keeps
// the one on the earliest line: the user mends a file from the top.
//
// Values are typed as YAML's core schema has it: a quoted scalar is a text, `yes` is no boolean.
// Value types; one thread. Private to common/job_spec.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/status.h"

namespace muster {

// What a scalar is by YAML's core schema.
enum class ScalarKind { kNull, kBoolean, kInteger, kNumber, kText };
ScalarKind KindOfScalar(const YAML::Node& node);

// 1-based; 0 when the node has no place in a file.
int LineOf(const YAML::Node& node);

class SpecErrors {
 public:
  // `keys`, if given, gets each key that a MapReader was asked for, dotted.
  explicit SpecErrors(std::string file, std::set<std::string>* keys = nullptr)
      : file_(std::move(file)), keys_(keys) {}

  std::set<std::string>* keys() const { return keys_; }
  void Add(int line, const std::string& key, const std::string& message);
  bool ok() const { return message_.empty(); }
  // INVALID_ARGUMENT "file:line: key: message", or OK.
  Status status() const;

 private:
  std::string file_;
  std::set<std::string>* keys_;
  int line_ = 0;
  std::string message_;
};

struct IntegerRange {
  std::int64_t low;
  std::int64_t high;
};

struct NumberRange {
  std::string_view words;  // "above 0"
  std::function<bool(double)> contains;
};

// Which texts a key may have; `later` ones are known but refused by name.
struct TextChoices {
  std::vector<std::string> allowed;
  std::vector<std::string> later;
};

class MapReader {
 public:
  // `path` is the dotted key of the map itself, empty for the whole file.
  MapReader(SpecErrors* errors, const YAML::Node& node, std::string path);

  // Whether the key is there, null included.
  bool Has(const std::string& key);

  // The names of its keys, in the order of the file.
  std::vector<std::string> Names() const;

  void Text(const std::string& key, std::string* out);
  // A scalar of any kind, as its text.
  void AnyText(const std::string& key, std::string* out);
  void Choice(const std::string& key, const TextChoices& choices, std::string* out);
  void Integer(const std::string& key, IntegerRange range, std::int64_t* out);
  void Integer(const std::string& key, IntegerRange range, int* out);
  void Unsigned(const std::string& key, std::uint64_t* out);
  void Number(const std::string& key, const NumberRange& range, double* out);
  void Boolean(const std::string& key, bool* out);
  // "1h30m", "90m", "30s", "2d".
  void Seconds(const std::string& key, std::int64_t* out);
  // "5GB", "512MiB", bytes.
  void Bytes(const std::string& key, std::int64_t* out);
  // Any scalars as their text; newline and tab are allowed in them.
  void TextList(const std::string& key, std::vector<std::string>* out);
  // Name and text of every entry of a map of scalars, with the line of each.
  struct Entry {
    std::string name;
    std::string text;
    int line;
  };
  std::vector<Entry> TextMap(const std::string& key);
  std::optional<YAML::Node> Node(const std::string& key);
  // A section; absent or not a map: nothing (the latter after an error).
  std::optional<MapReader> Map(const std::string& key);

  // A map within the list that `key` has; `place` counts from 0.
  MapReader MapWithin(const std::string& key, const YAML::Node& node, std::size_t place) const;

  // A key of a later version: absent and null pass, anything else is refused with the advice.
  void Later(const std::string& key, const std::string& advice);
  void RefuseLater(const std::string& key, const std::string& what);
  void Require(const std::string& key, const std::string& what);

  // Refuses a key that was not asked for, else a missing one. Call last.
  void Finish();

  // Whether a text at that key has no control characters; newline and tab may be allowed.
  bool CheckCharacters(const std::string& key, const std::string& text, bool allow_lines);
  void Error(const std::string& key, const std::string& message);
  int line() const { return line_; }
  std::string PathOf(const std::string& key) const;

 private:
  // The value of a key that must be a scalar of `kind`; says what was expected otherwise.
  std::optional<std::string> Scalar(const std::string& key, ScalarKind kind,
                                    const std::string& expected);

  SpecErrors* errors_;
  std::string path_;
  int line_ = 0;
  std::vector<std::pair<std::string, YAML::Node>> entries_;
  std::vector<int> key_lines_;                          // of entries_
  std::unordered_map<std::string, std::size_t> first_;  // of entries_, by key
  std::vector<std::string> known_;
  std::pair<std::string, std::string> missing_;  // the first required key that is not there, why
};

}  // namespace muster
