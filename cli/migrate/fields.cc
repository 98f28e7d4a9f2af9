#include "cli/migrate/fields.h"

#include <algorithm>
#include <cmath>

#include "common/base/strings.h"
#include "common/job_spec/job_file.h"
#include "common/job_spec/job_spec.h"

namespace muster::migrate {

std::string JobName(std::string text, const std::string& otherwise) {
  constexpr std::size_t kMost = 63;
  for (char& c : text) {
    const bool fits = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (!fits && c != '-' && c != '_' && c != '.') c = '-';
  }
  text.resize(std::min(text.size(), kMost));
  return FollowsJobNameRule(text) ? text : otherwise;
}

std::string Quoted(const std::string& text) { return OverrideText("", text).substr(1); }

Fields::Fields(Document document, const VerdictTable& table, Migration* out)
    : document_(std::move(document)), table_(table), out_(out), defaults_(table.defaults()) {}

void Fields::Apply() {
  for (const Entry& entry : document_.entries) Judge(entry);
}

void Fields::Judge(const Entry& entry) {
  const Rule* rule = table_.Find(entry.key);
  Finding finding{.key = entry.key, .value = entry.text, .line = entry.line};
  if (rule == nullptr) {
    // A section that is empty says nothing.
    const auto known = table_.keys();
    if (entry.is_null && std::ranges::any_of(known, [&](const std::string& key) {
          return key.starts_with(entry.key + ".");
        }))
      return;
    const auto nearest = NearestWord(entry.key, known);
    finding.verdict = Verdict::kRefused;
    finding.reason = "is no key of " + out_->tool + " that is known here" +
                     (nearest ? "; did you mean '" + *nearest + "'?" : "");
    out_->findings.push_back(std::move(finding));
    return;
  }
  if (rule->verdict == Verdict::kTaken) return Take(entry, *rule);
  if (entry.is_null) return;
  const bool off = rule->verdict == Verdict::kRefused && IsOff(entry, *rule);
  finding.verdict = off ? Verdict::kExplained : rule->verdict;
  finding.reason = off ? "is off here as well" : rule->reason;
  out_->findings.push_back(std::move(finding));
}

void Fields::Take(const Entry& entry, const Rule& rule) {
  std::string value = entry.text;
  const auto word = std::ranges::find_if(rule.words, [&](const auto& each) {
    return each.first == (entry.is_null ? "null" : entry.text) || each.first == entry.lower();
  });
  if (word != rule.words.end()) {
    value = word->second;
  } else if (entry.is_null) {
    return;
  }
  const bool listed = word != rule.words.end() || rule.reason.empty();
  Finding finding{.verdict = listed ? Verdict::kTaken : Verdict::kRefused,
                  .key = entry.key,
                  .value = entry.text,
                  .reason = listed ? std::string() : rule.reason,
                  .line = entry.line};
  const auto other = given_.find(rule.field);
  if (listed && other != given_.end() && other->second.value != value && !rule.gathers) {
    finding.verdict = Verdict::kRefused;
    finding.reason = "another key gives the same setting another value; leave one of them";
  }
  out_->findings.push_back(finding);
  if (finding.verdict == Verdict::kRefused) return;
  GivenField& given = given_[rule.field];
  if (given.findings.empty()) {
    given.value = value;
    given.elements = entry.elements;
  }
  given.findings.push_back(out_->findings.size() - 1);
}

std::optional<std::string> Fields::Get(std::string_view field) const {
  if (const auto found = given_.find(std::string(field)); found != given_.end())
    return found->second.value;
  if (const auto found = defaults_.find(std::string(field)); found != defaults_.end())
    return found->second;
  return std::nullopt;
}

std::string Fields::GetOr(std::string_view field, const std::string& otherwise) const {
  return Get(field).value_or(otherwise);
}

bool Fields::On(std::string_view field) const {
  return BooleanIn(GetOr(field, "")).value_or(false);
}

std::optional<double> Fields::Number(std::string_view field) const {
  const auto text = Get(field);
  return text ? NumberIn(*text) : std::nullopt;
}

std::vector<std::string> Fields::List(std::string_view field) const {
  const auto found = given_.find(std::string(field));
  if (found != given_.end() && !found->second.elements.empty()) return found->second.elements;
  std::vector<std::string> parts;
  std::string rest = GetOr(field, "");
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string part = rest.substr(0, comma);
    part.erase(0, part.find_first_not_of(' '));
    if (const std::size_t last = part.find_last_not_of(' '); last != std::string::npos)
      parts.push_back(part.substr(0, last + 1));
    rest.erase(0, comma + 1);
  }
  return parts;
}

void Fields::Put(const std::string& field, const std::string& value) {
  const auto found = given_.find(field);
  if (found == given_.end()) {
    defaults_[field] = value;
  } else {
    found->second.value = value;
    found->second.elements.clear();
  }
}

void Fields::Note(std::string_view field, Verdict verdict, const std::string& reason) {
  const auto found = given_.find(std::string(field));
  if (found == given_.end()) return;
  for (const std::size_t at : found->second.findings) {
    Finding& finding = out_->findings[at];
    if (finding.verdict == Verdict::kRefused) continue;
    const bool used = finding.verdict != Verdict::kTaken || !finding.reason.empty();
    if (verdict == Verdict::kExplained && used) continue;
    const bool more =
        finding.verdict == Verdict::kTaken && verdict == Verdict::kTaken && !finding.reason.empty();
    finding.reason = more ? finding.reason + ", " + reason : reason;
    finding.verdict = verdict;
  }
}

void Fields::Explain(std::string_view field, const std::string& reason) {
  Note(field, Verdict::kExplained, reason);
}

void Fields::Refuse(std::string_view field, const std::string& reason) {
  if (Given(field)) return Note(field, Verdict::kRefused, reason);
  out_->findings.push_back({.verdict = Verdict::kRefused,
                            .key = std::string(field),
                            .value = GetOr(field, "(absent)"),
                            .reason = reason});
}

void Fields::Set(const std::string& job_key, const std::string& yaml,
                 std::initializer_list<std::string_view> from) {
  settings_.push_back(job_key + "=" + yaml);
  for (const std::string_view field : from) Note(field, Verdict::kTaken, job_key + ": " + yaml);
}

void Fields::SetText(const std::string& job_key, const std::string& text,
                     std::initializer_list<std::string_view> from) {
  Set(job_key, Quoted(text), from);
}

void Fields::SetNumber(const std::string& job_key, std::string_view field, bool whole) {
  const auto text = Get(field);
  if (!text) return;
  const auto number = NumberIn(*text);
  if (!number || (whole && *number != std::floor(*number)))
    return Refuse(field, whole ? "expected a whole number" : "expected a number");
  Set(job_key, whole ? std::to_string(static_cast<std::int64_t>(*number)) : *text, {field});
}

}  // namespace muster::migrate
