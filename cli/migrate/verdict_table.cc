#include "cli/migrate/verdict_table.h"

#include <algorithm>
#include <array>
#include <sstream>

#include "common/base/check.h"

namespace muster::migrate {
namespace {

std::vector<std::string> Words(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// "a=b"; without "=" the word stands for itself.
std::pair<std::string, std::string> Pair(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string::npos) return {word, word};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::string Rest(const std::string& line, std::string_view word) {
  return line.size() > word.size() + 1 ? line.substr(word.size() + 1) : std::string();
}

}  // namespace

VerdictTable::VerdictTable(std::string_view text, std::string_view shared) {
  Read(text);
  own_ = rules_.size();
  Read(shared);
}

void VerdictTable::Read(std::string_view text) {
  std::istringstream lines{std::string(text)};
  Rule below;
  bool other_version = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> words = Words(line);
    if (line.front() == ' ') {
      MUSTER_CHECK(below.verdict != Verdict::kTaken, "keys have a verdict above them");
      for (const std::string& word : words) {
        Rule rule = below;
        const std::size_t equals = word.find('=');
        std::istringstream values(equals == std::string::npos ? "" : word.substr(equals + 1));
        for (std::string value; std::getline(values, value, '|');) rule.off.push_back(value);
        Add(word.substr(0, equals), std::move(rule));
      }
      continue;
    }
    const std::string& verb = words.front();
    if (verb == "marks") {
      marks_.insert(marks_.end(), words.begin() + 1, words.end());
    } else if (verb == "default") {
      defaults_.emplace(words.at(1), words.at(2));
    } else if (verb == "versions") {
      other_version = true;
    } else if (verb == "take" || verb == "gather") {
      ReadTake(line, other_version);
    } else {
      MUSTER_CHECK(verb == "explain" || verb == "refuse", "a line of a table has a verdict");
      below = {.verdict = verb == "explain" ? Verdict::kExplained : Verdict::kRefused,
               .reason = Rest(line, verb),
               .other_version = other_version};
    }
  }
}

void VerdictTable::ReadTake(const std::string& line, bool other_version) {
  Rule rule{.verdict = Verdict::kTaken, .other_version = other_version};
  rule.gathers = line.starts_with("gather");
  std::string head = line;
  if (const std::size_t at = head.find(" ! "); at != std::string::npos) {
    rule.reason = head.substr(at + 3);
    head.resize(at);
  }
  if (const std::size_t at = head.find(" : "); at != std::string::npos) {
    for (const std::string& word : Words(head.substr(at + 3))) rule.words.push_back(Pair(word));
    head.resize(at);
  }
  const std::vector<std::string> words = Words(head);
  MUSTER_CHECK(words.size() > 2, "take names a field and its keys");
  rule.field = words[1];
  for (std::size_t i = 2; i < words.size(); ++i) Add(words[i], rule);
}

void VerdictTable::Add(const std::string& key, Rule rule) {
  const bool is_new = rules_.emplace(key, std::move(rule)).second;
  MUSTER_CHECK(is_new || own_ > 0, "a key has one verdict");
}

const Rule* VerdictTable::Find(const std::string& key) const {
  if (const auto exact = rules_.find(key); exact != rules_.end()) return &exact->second;
  for (std::size_t end = key.size(); end != std::string::npos && end > 0;
       end = key.rfind('.', end - 1)) {
    const std::string section = key.substr(0, end);
    if (const auto keys = rules_.find(section + ".*"); keys != rules_.end()) return &keys->second;
    const auto whole = rules_.find(section);
    if (whole != rules_.end() && whole->second.verdict != Verdict::kTaken) return &whole->second;
  }
  return nullptr;
}

std::vector<std::string> VerdictTable::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, rule] : rules_) keys.push_back(key);
  return keys;
}

bool VerdictTable::Marks(const Document& document) const {
  return std::ranges::any_of(marks_, [&](const std::string& key) { return document.Has(key); });
}

bool IsOff(const Entry& entry, const Rule& rule) {
  static constexpr std::array<std::string_view, 7> kOff = {"false", "none", "no",     "off",
                                                           "0",     "0.0",  "disable"};
  return entry.is_null || entry.text.empty() || std::ranges::count(kOff, entry.lower()) > 0 ||
         std::ranges::count(rule.off, entry.text) > 0;
}

}  // namespace muster::migrate
