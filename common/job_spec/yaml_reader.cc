#include "common/job_spec/yaml_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "common/base/byte_size.h"
#include "common/base/strings.h"
#include "common/job_spec/job_times.h"

namespace muster {
namespace {

constexpr char kAText[] = "a text";

bool AllDigits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string_view WithoutSign(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  return text;
}

bool ParseDouble(std::string_view text, double* out) {
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  const auto result = std::from_chars(text.data(), text.data() + text.size(), *out);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::string Shown(std::string text) {
  constexpr std::size_t kMaxShown = 60;
  if (text.size() > kMaxShown) text = text.substr(0, kMaxShown) + "...";
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

std::string Got(const YAML::Node& node) {
  if (node.IsSequence()) return "a list";
  if (node.IsMap()) return "a map";
  switch (KindOfScalar(node)) {
    case ScalarKind::kNull: return "nothing";
    case ScalarKind::kText: return "'" + Shown(node.Scalar()) + "'";
    default: return Shown(node.Scalar());
  }
}

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " or " : ", ";
    out += words[i];
  }
  return out;
}

}  // namespace

ScalarKind KindOfScalar(const YAML::Node& node) {
  if (node.IsNull()) return ScalarKind::kNull;
  if (node.Tag() == "!") return ScalarKind::kText;  // yaml-cpp's mark of a quoted scalar
  const std::string& text = node.Scalar();
  if (text == "true" || text == "True" || text == "TRUE" || text == "false" || text == "False" ||
      text == "FALSE")
    return ScalarKind::kBoolean;
  if (AllDigits(WithoutSign(text))) return ScalarKind::kInteger;
  double ignored = 0;
  const bool starts_like_a_number =
      WithoutSign(text).find_first_of("0123456789.") == 0 && text.find_first_of("xX") == text.npos;
  if (starts_like_a_number && ParseDouble(text, &ignored)) return ScalarKind::kNumber;
  return ScalarKind::kText;
}

int LineOf(const YAML::Node& node) {
  const YAML::Mark mark = node.Mark();
  return mark.is_null() ? 0 : mark.line + 1;
}

void SpecErrors::Add(int line, const std::string& key, const std::string& message) {
  if (!message_.empty() && line >= line_) return;
  line_ = line;
  message_ = key.empty() ? message : key + ": " + message;
}

Status SpecErrors::status() const {
  if (ok()) return OkStatus();
  return InvalidArgument(file_ + ":" + std::to_string(std::max(line_, 1)) + ": " + message_);
}

MapReader::MapReader(SpecErrors* errors, const YAML::Node& node, std::string path)
    : errors_(errors), path_(std::move(path)), line_(LineOf(node)) {
  for (const auto& pair : node) {
    const int line = LineOf(pair.first);
    if (!pair.first.IsScalar()) {
      errors_->Add(line, path_, "keys must be words, got " + Got(pair.first));
      continue;
    }
    const std::string key = pair.first.Scalar();
    const auto [first, is_new] = first_.try_emplace(key, entries_.size());
    if (!is_new)
      errors_->Add(
          line, PathOf(key),
          "is given twice; the first one is on line " + std::to_string(key_lines_[first->second]));
    entries_.emplace_back(key, pair.second);
    key_lines_.push_back(line);
  }
}

std::string MapReader::PathOf(const std::string& key) const {
  return path_.empty() ? Shown(key) : path_ + "." + Shown(key);
}

std::optional<YAML::Node> MapReader::Node(const std::string& key) {
  known_.push_back(key);
  if (errors_->keys() != nullptr) errors_->keys()->insert(PathOf(key));
  const auto first = first_.find(key);
  if (first == first_.end()) return std::nullopt;
  return entries_[first->second].second;
}

bool MapReader::Has(const std::string& key) { return Node(key).has_value(); }

void MapReader::Error(const std::string& key, const std::string& message) {
  const auto first = first_.find(key);
  errors_->Add(first == first_.end() ? line_ : key_lines_[first->second], PathOf(key), message);
}

std::optional<std::string> MapReader::Scalar(const std::string& key, ScalarKind kind,
                                             const std::string& expected) {
  const auto node = Node(key);
  if (!node) return std::nullopt;
  const bool scalar = node->IsScalar();
  const ScalarKind actual = scalar ? KindOfScalar(*node) : ScalarKind::kNull;
  const bool whole_for_number = kind == ScalarKind::kNumber && actual == ScalarKind::kInteger;
  if (scalar && (actual == kind || whole_for_number)) return node->Scalar();
  std::string message = "expected " + expected + ", got " + Got(*node);
  if (scalar && expected == kAText && actual != ScalarKind::kNull) message += "; put it in quotes";
  Error(key, message);
  return std::nullopt;
}

bool MapReader::CheckCharacters(const std::string& key, const std::string& text, bool allow_lines) {
  for (const char c : text) {
    const bool line_character = c == '\n' || c == '\t';
    if ((static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) || (allow_lines && line_character))
      continue;
    Error(key, "control characters are not allowed");
    return false;
  }
  return true;
}

void MapReader::Text(const std::string& key, std::string* out) {
  const auto text = Scalar(key, ScalarKind::kText, kAText);
  if (!text || !CheckCharacters(key, *text, /*allow_lines=*/false)) return;
  if (text->empty()) return Error(key, "must not be empty");
  *out = *text;
}

void MapReader::Choice(const std::string& key, const TextChoices& choices, std::string* out) {
  const auto text = Scalar(key, ScalarKind::kText, Joined(choices.allowed));
  if (!text) return;
  const auto has = [&](const std::vector<std::string>& words) {
    return std::find(words.begin(), words.end(), *text) != words.end();
  };
  if (has(choices.allowed)) {
    *out = *text;
  } else if (has(choices.later)) {
    RefuseLater(key, "'" + *text + "'; use " + Joined(choices.allowed));
  } else {
    Error(key, "expected " + Joined(choices.allowed) + ", got '" + Shown(*text) + "'");
  }
}

void MapReader::Integer(const std::string& key, IntegerRange range, std::int64_t* out) {
  const auto text = Scalar(key, ScalarKind::kInteger, "a whole number");
  if (!text) return;
  std::string_view digits = *text;
  if (digits[0] == '+') digits.remove_prefix(1);
  std::int64_t value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ec != std::errc() || value < range.low || value > range.high)
    return Error(key, "must be from " + std::to_string(range.low) + " to " +
                          std::to_string(range.high) + ", got " + Shown(*text));
  *out = value;
}

void MapReader::Integer(const std::string& key, IntegerRange range, int* out) {
  std::int64_t value = *out;
  Integer(key, range, &value);
  *out = static_cast<int>(value);
}

void MapReader::Unsigned(const std::string& key, std::uint64_t* out) {
  const auto text = Scalar(key, ScalarKind::kInteger, "a whole number");
  if (!text) return;
  std::uint64_t value = 0;
  const auto result = std::from_chars(text->data(), text->data() + text->size(), value);
  if (result.ec != std::errc() || result.ptr != text->data() + text->size())
    return Error(key, "must be from 0 to 18446744073709551615, got " + Shown(*text));
  *out = value;
}

void MapReader::Number(const std::string& key, const NumberRange& range, double* out) {
  const auto text = Scalar(key, ScalarKind::kNumber, "a number");
  if (!text) return;
  double value = 0;
  if (!ParseDouble(*text, &value) || !std::isfinite(value) || !range.contains(value))
    return Error(key, "must be " + std::string(range.words) + ", got " + Shown(*text));
  *out = value;
}

void MapReader::Boolean(const std::string& key, bool* out) {
  const auto text = Scalar(key, ScalarKind::kBoolean, "true or false");
  if (text) *out = (*text)[0] == 't' || (*text)[0] == 'T';
}

void MapReader::Seconds(const std::string& key, std::int64_t* out) {
  static constexpr char kExpected[] = "a duration such as 12h, 90m or 30s";
  const auto text = Scalar(key, ScalarKind::kText, kExpected);
  if (!text) return;
  const auto seconds = ParseSeconds(*text);
  if (!seconds)
    return Error(key, "expected " + std::string(kExpected) + ", got '" + Shown(*text) + "'");
  if (*seconds == 0) return Error(key, "must be longer than 0s");
  *out = *seconds;
}

void MapReader::Bytes(const std::string& key, std::int64_t* out) {
  const auto node = Node(key);
  const bool is_number = node && node->IsScalar() && KindOfScalar(*node) == ScalarKind::kInteger;
  const auto text =
      Scalar(key, is_number ? ScalarKind::kInteger : ScalarKind::kText, kByteSizeExpected);
  if (!text) return;
  const auto bytes = ParseByteSize(*text);
  if (!bytes) {
    return Error(key,
                 std::string("expected ") + kByteSizeExpected + ", got '" + Shown(*text) + "'");
  }
  *out = *bytes;
}

std::vector<std::string> MapReader::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, node] : entries_) names.push_back(name);
  return names;
}

void MapReader::AnyText(const std::string& key, std::string* out) {
  const auto node = Node(key);
  if (!node) return;
  if (!node->IsScalar()) return Error(key, "expected a text, got " + Got(*node));
  if (CheckCharacters(key, node->Scalar(), /*allow_lines=*/false)) *out = node->Scalar();
}

void MapReader::TextList(const std::string& key, std::vector<std::string>* out) {
  const auto node = Node(key);
  if (!node) return;
  if (!node->IsSequence()) return Error(key, "expected a list such as [a, b], got " + Got(*node));
  std::vector<std::string> texts;
  for (const auto& element : *node) {
    if (!element.IsScalar())
      return errors_->Add(LineOf(element), PathOf(key),
                          "expected a list of texts, got " + Got(element) + " in it");
    if (!CheckCharacters(key, element.Scalar(), /*allow_lines=*/true)) return;
    texts.push_back(element.Scalar());
  }
  *out = std::move(texts);
}

std::vector<MapReader::Entry> MapReader::TextMap(const std::string& key) {
  std::vector<Entry> out;
  std::optional<MapReader> map = Map(key);
  if (!map) return out;
  for (std::size_t i = 0; i < map->entries_.size(); ++i) {
    const auto& [name, node] = map->entries_[i];
    if (!node.IsScalar()) {
      map->Error(name, "expected a text, got " + Got(node));
      continue;
    }
    if (!map->CheckCharacters(name, node.Scalar(), /*allow_lines=*/true)) continue;
    out.push_back({name, node.Scalar(), map->key_lines_[i]});
  }
  return out;
}

std::optional<MapReader> MapReader::Map(const std::string& key) {
  const auto node = Node(key);
  if (!node) return std::nullopt;
  if (!node->IsMap()) {
    Error(key, "expected a map, got " + Got(*node));
    return std::nullopt;
  }
  return MapReader(errors_, *node, PathOf(key));
}

MapReader MapReader::MapWithin(const std::string& key, const YAML::Node& node,
                               std::size_t place) const {
  return MapReader(errors_, node, PathOf(key) + "[" + std::to_string(place) + "]");
}

void MapReader::Later(const std::string& key, const std::string& advice) {
  const auto node = Node(key);
  if (!node || node->IsNull()) return;
  RefuseLater(key, advice);
}

void MapReader::RefuseLater(const std::string& key, const std::string& what) {
  Error(key, "not supported in this version: " + what);
}

void MapReader::Require(const std::string& key, const std::string& what) {
  if (!Has(key) && missing_.first.empty()) missing_ = {key, "is missing; " + what};
}

void MapReader::Finish() {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string& key = entries_[i].first;
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    std::string message = "unknown key";
    if (const auto nearest = NearestWord(key, known_))
      message += "; did you mean '" + *nearest + "'?";
    // The other ones are below it.
    return errors_->Add(key_lines_[i], PathOf(key), message);
  }
  // An unknown key may be the missing one, misspelt.
  if (!missing_.first.empty()) errors_->Add(line_, PathOf(missing_.first), missing_.second);
}

}  // namespace muster
