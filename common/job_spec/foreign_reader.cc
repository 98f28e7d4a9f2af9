#include "common/job_spec/foreign_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "common/base/strings.h"
#include "common/job_spec/yaml_reader.h"

namespace muster {
namespace {

constexpr std::size_t kMaxEntries = 5'000;
constexpr int kMaxDepth = 8;
constexpr double kMaxCount = 1e9;
constexpr std::size_t kMaxShown = 60;

// A scalar, or a container without anything in it; a list of scalars is one text.
void FlattenNode(const YAML::Node& node, const std::string& key, int depth,
                 std::vector<ForeignEntry>* out) {
  if (depth > kMaxDepth || out->size() > kMaxEntries)
    throw YAML::Exception(node.Mark(), "too large or too deeply nested");
  if (node.IsMap() && node.size() > 0) {
    for (const auto& pair : node) {
      const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "?";
      FlattenNode(pair.second, key.empty() ? name : key + "." + name, depth + 1, out);
    }
    return;
  }
  ForeignEntry entry{.key = key, .text = {}, .line = LineOf(node)};
  if (node.IsScalar() && !node.IsNull()) entry.text = node.Scalar();
  if (node.IsSequence()) {
    for (const auto& element : node) {
      if (!element.IsScalar()) throw YAML::Exception(element.Mark(), "a list of lists or maps");
      entry.text += (entry.text.empty() ? "" : ", ") + element.Scalar();
    }
  }
  out->push_back(std::move(entry));
}

bool Matches(const ForeignRule& rule, const std::string& key) {
  if (!rule.key.ends_with(".*")) return key == rule.key;
  const std::string_view section = rule.key.substr(0, rule.key.size() - 2);
  return key == section || key.starts_with(std::string(section) + ".");
}

// Whether `word` is one of "a|b|c".
bool Lists(std::string_view words, std::string_view word) {
  for (std::size_t begin = 0; begin <= words.size();) {
    const std::size_t end = std::min(words.find('|', begin), words.size());
    if (words.substr(begin, end - begin) == word) return true;
    begin = end + 1;
  }
  return false;
}

}  // namespace

std::string ForeignEntry::lower() const { return AsciiLower(text); }

bool IsSameValue(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char* end_a = nullptr;
  char* end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return !a.empty() && !b.empty() && *end_a == '\0' && *end_b == '\0' && x == y;
}

std::optional<bool> ForeignEntry::boolean() const {
  const std::string word = lower();
  if (word == "true" || word == "yes") return true;
  if (word == "false" || word == "no") return false;
  return std::nullopt;
}

std::optional<double> ForeignEntry::number() const {
  double value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> ForeignEntry::count() const {
  const auto value = number();
  if (!value || *value < 1 || *value != std::floor(*value) || *value > kMaxCount)
    return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

Status ForeignReader::Flatten(std::string_view text) {
  // JSON may be indented with tabs, YAML may not.
  std::string spaces(text);
  std::ranges::replace(spaces, '\t', ' ');
  try {
    const YAML::Node root = YAML::Load(spaces);
    if (!root.IsMap())
      return InvalidArgument(config_.file +
                             ":1: expected a map of keys, as accelerate config or "
                             "DeepSpeed writes it");
    FlattenNode(root, "", 0, &entries_);
    return OkStatus();
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(config_.file + ":" + std::to_string(line) +
                           ": cannot be read: " + error.msg);
  }
}

Result<ForeignConfig> ForeignReader::Read(std::string_view text, std::span<const ForeignRule> rules,
                                          bool examines) {
  MUSTER_RETURN_IF_ERROR(Flatten(text));
  for (const ForeignEntry& entry : entries_) Apply(entry, rules);
  if (config_.refusals.empty() || examines) return config_;
  return InvalidArgument(config_.refusals.front());
}

void ForeignReader::Apply(const ForeignEntry& entry, std::span<const ForeignRule> rules) {
  const auto rule = std::ranges::find_if(
      rules, [&entry](const ForeignRule& each) { return Matches(each, entry.key); });
  const std::string section = entry.key + ".";
  const bool empty_section =
      entry.text.empty() && std::ranges::any_of(rules, [&section](const ForeignRule& each) {
        return each.key.starts_with(section);
      });
  if (rule == rules.end() && empty_section) return;
  if (rule == rules.end()) {
    std::vector<std::string> known;
    for (const ForeignRule& each : rules) known.emplace_back(each.key);
    const auto nearest = NearestWord(entry.key, known);
    return Refuse(entry, "unknown key" + (nearest ? "; did you mean '" + *nearest + "'?" : ""));
  }
  if (rule->map != nullptr && entry.is("auto")) return Note(entry, "the job file's value counts");
  if (rule->map != nullptr) return entry.text.empty() ? void() : rule->map(*this, entry);
  if (!rule->only.empty() && !entry.is("auto") && !Lists(rule->only, entry.lower()))
    return Refuse(entry, std::string(rule->note));
  // A key that is as good as absent needs no note.
  if (!entry.text.empty() && rule->only.empty()) Note(entry, rule->note);
}

void ForeignReader::Set(const std::string& key, const std::string& value, const ForeignEntry& from,
                        const std::string& unless) {
  for (const ForeignSetting& other : config_.settings) {
    if (other.key == key && !IsSameValue(other.value, value))
      return Refuse(from, "gives another " + key + " than " + other.from + "; leave one of them");
  }
  config_.settings.push_back(
      {.key = key, .value = value, .from = from.key + ": " + from.text, .unless = unless});
}

void ForeignReader::Note(const ForeignEntry& entry, std::string_view note) {
  config_.notes.push_back(entry.key + ": " + std::string(note));
}

void ForeignReader::Refuse(const ForeignEntry& entry, const std::string& why) {
  const std::string value = entry.text.empty() ? "" : " " + entry.text.substr(0, kMaxShown);
  config_.refusals.push_back(config_.file + ":" + std::to_string(entry.line) + ": " + entry.key +
                             ":" + value + ": " + why);
}

void ForeignReader::SetBoolean(const std::string& key, const ForeignEntry& entry) {
  const auto value = entry.boolean();
  if (!value) return Refuse(entry, "expected true or false");
  Set(key, *value ? "true" : "false", entry);
}

void ForeignReader::SetCount(const std::string& key, const ForeignEntry& entry,
                             const std::string& unless) {
  const auto value = entry.count();
  if (!value) return Refuse(entry, "expected a whole number from 1 on");
  Set(key, std::to_string(*value), entry, unless);
}

void ForeignReader::SetNumber(const std::string& key, const ForeignEntry& entry) {
  if (!entry.number()) return Refuse(entry, "expected a number");
  Set(key, entry.text, entry);
}

const ForeignEntry* ForeignReader::Find(std::string_view key) const {
  for (const ForeignEntry& entry : entries_)
    if (entry.key == key && !entry.text.empty() && !entry.is("auto")) return &entry;
  return nullptr;
}

bool ForeignReader::Has(std::string_view key) const {
  return std::ranges::any_of(entries_, [key](const ForeignEntry& entry) {
    return entry.key == key && !entry.text.empty();
  });
}

}  // namespace muster
