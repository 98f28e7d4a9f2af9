#include "cli/migrate/document.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "common/base/strings.h"

namespace muster::migrate {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxEntries = 5'000;
constexpr int kMaxInterpolations = 8;

int LineOf(const YAML::Node& node) { return node.Mark().line + 1; }

void Flatten(const YAML::Node& node, const std::string& key, int place, int depth,
             std::vector<Entry>* out) {
  if (depth > kMaxDepth || out->size() > kMaxEntries)
    throw YAML::Exception(node.Mark(), "too large or too deeply nested");
  if (node.IsMap() && node.size() > 0) {
    for (const auto& pair : node) {
      const std::string name = pair.first.IsScalar() ? pair.first.Scalar() : "?";
      Flatten(pair.second, key.empty() ? name : key + "." + name, place, depth + 1, out);
    }
    return;
  }
  const bool of_maps =
      node.IsSequence() && std::any_of(node.begin(), node.end(),
                                       [](const auto& e) { return e.IsMap() && e.size() > 0; });
  if (of_maps) {
    int at = 0;
    for (const auto& element : node) Flatten(element, key, at++, depth + 1, out);
    return;
  }
  Entry entry{.key = key, .text = {}, .line = LineOf(node), .place = place, .elements = {}};
  if (node.IsScalar()) entry.text = node.Scalar();
  if (node.IsSequence()) {
    for (const auto& element : node) {
      YAML::Emitter text;
      text << YAML::Flow << element;
      entry.elements.push_back(element.IsScalar() ? element.Scalar() : text.c_str());
      entry.text += (entry.text.empty() ? "" : ", ") + entry.elements.back();
    }
  }
  entry.is_null = !node.IsScalar() && entry.elements.empty();
  if (node.IsScalar() && node.Tag() != "!" && (entry.text.empty() || entry.lower() == "null"))
    entry.is_null = true;
  if (entry.is_null) entry.text.clear();
  out->push_back(std::move(entry));
}

bool EndsWord(char c) { return c == ' ' || c == '\t'; }

// The words of a line as a shell reads them, without expansion but of variables.
std::vector<std::string> ShellWords(std::string_view line,
                                    const std::map<std::string, std::string>& variables) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;
  char quote = 0;
  const auto expand = [&](std::size_t at) {
    const bool braces = at + 1 < line.size() && line[at + 1] == '{';
    const std::size_t begin = at + (braces ? 2 : 1);
    std::size_t end = begin;
    while (end < line.size() &&
           (std::isalnum(static_cast<unsigned char>(line[end])) != 0 || line[end] == '_'))
      ++end;
    const auto known = variables.find(std::string(line.substr(begin, end - begin)));
    if (end == begin || known == variables.end()) return word += '$', at;
    word += known->second;
    return braces && end < line.size() ? end : end - 1;
  };
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && EndsWord(c)) {
      if (inside) words.push_back(std::exchange(word, {}));
      inside = false;
      continue;
    }
    if (quote == 0 && c == '#' && !inside) break;
    inside = true;
    if (c == quote)
      quote = 0;
    else if (quote == 0 && (c == '"' || c == '\''))
      quote = c;
    else if (c == '$' && quote != '\'')
      i = expand(i);
    else if (c == '\\' && quote != '\'' && i + 1 < line.size())
      word += line[++i];
    else
      word += c;
  }
  if (inside) words.push_back(word);
  return words;
}

bool IsAssignment(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return false;
  return std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
}

}  // namespace

std::string Entry::lower() const { return AsciiLower(text); }

std::optional<double> NumberIn(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<bool> BooleanIn(const std::string& text) {
  const std::string word = AsciiLower(text);
  if (word == "true" || word == "yes") return true;
  if (word == "false" || word == "no") return false;
  return std::nullopt;
}

bool Document::Has(std::string_view key) const {
  return std::ranges::any_of(entries, [&](const Entry& entry) {
    return entry.key == key || (entry.key.starts_with(key) && entry.key.size() > key.size() &&
                                entry.key[key.size()] == '.');
  });
}

const Entry* Document::Find(std::string_view key, int place) const {
  for (const Entry& entry : entries)
    if (entry.key == key && entry.place == place && !entry.is_null) return &entry;
  return nullptr;
}

Result<Document> ReadDocument(std::string_view text, const std::string& file) {
  // JSON may be indented with tabs, YAML may not.
  std::string spaces(text);
  std::ranges::replace(spaces, '\t', ' ');
  Document document{.file = file, .entries = {}, .sections = {}};
  try {
    const YAML::Node root = YAML::Load(spaces);
    if (!root.IsMap()) return InvalidArgument(file + ":1: expected a map of keys");
    Flatten(root, "", 0, 0, &document.entries);
    for (const auto& pair : root) {
      if (!pair.second.IsMap() || !pair.first.IsScalar()) continue;
      YAML::Emitter flow;
      flow.SetMapFormat(YAML::Flow);
      flow.SetSeqFormat(YAML::Flow);
      flow << pair.second;
      document.sections[pair.first.Scalar()] = flow.c_str();
    }
    return document;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(file + ":" + std::to_string(line) + ": cannot be read: " + error.msg);
  }
}

Result<Document> ReadFlags(const std::vector<std::string>& words, const std::string& file) {
  Document document{.file = file, .entries = {}, .sections = {}};
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with("--"))
      return InvalidArgument(file + ": expected a flag, got '" + words[i] + "'");
    const std::size_t equals = words[i].find('=');
    Entry entry{.key = words[i].substr(2, equals - 2), .text = "true", .line = 1, .elements = {}};
    std::ranges::replace(entry.key, '-', '_');
    if (equals != std::string::npos) {
      entry.text = words[i].substr(equals + 1);
    } else {
      while (i + 1 < words.size() && !words[i + 1].starts_with("--"))
        entry.elements.push_back(words[++i]);
      for (const std::string& each : entry.elements)
        entry.text = &each == &entry.elements.front() ? each : entry.text + ", " + each;
      if (entry.elements.size() == 1) entry.elements.clear();
    }
    document.entries.push_back(std::move(entry));
  }
  return document;
}

void Interpolate(Document* document) {
  for (Entry& entry : document->entries) {
    for (int i = 0; i < kMaxInterpolations; ++i) {
      const std::size_t begin = entry.text.find("${");
      const std::size_t end = entry.text.find('}', begin);
      if (begin == std::string::npos || end == std::string::npos) break;
      const Entry* other = document->Find(entry.text.substr(begin + 2, end - begin - 2));
      if (other == nullptr) break;
      entry.text.replace(begin, end - begin + 1, std::string(other->text));
    }
  }
}

std::optional<ShellCommand> FindCommand(std::string_view script,
                                        bool (*is_it)(const std::vector<std::string>& words)) {
  std::string joined(script);
  for (std::size_t at = 0; (at = joined.find("\\\n", at)) != std::string::npos;)
    joined.replace(at, 2, " ");
  std::istringstream lines(joined);
  ShellCommand found;
  bool is_found = false;
  std::map<std::string, std::string> variables;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> words = ShellWords(line, variables);
    const bool exports = !words.empty() && words.front() == "export";
    if (exports) words.erase(words.begin());
    std::map<std::string, std::string> set;
    while (!words.empty() && IsAssignment(words.front())) {
      const std::size_t equals = words.front().find('=');
      set[words.front().substr(0, equals)] = words.front().substr(equals + 1);
      words.erase(words.begin());
    }
    if (words.empty()) {
      for (const auto& [name, value] : set) variables[name] = value;
      if (exports && !is_found) found.environment.insert(set.begin(), set.end());
    } else if (!is_found && is_it(words)) {
      is_found = true;
      for (const auto& [name, value] : set) found.environment[name] = value;
      found.words = std::move(words);
    } else {
      found.other_lines.push_back(line);
    }
  }
  if (!is_found) return std::nullopt;
  return found;
}

}  // namespace muster::migrate
