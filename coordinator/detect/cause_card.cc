#include "coordinator/detect/cause_card.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "common/base/text.h"
#include "common/process/exit_status.h"
#include "coordinator/detect/cause_advice.h"
#include "coordinator/detect/hang_culprit.h"

namespace muster {
namespace {

constexpr std::size_t kMaxWhatBytes = 400;
constexpr std::size_t kMaxFacts = 20;
constexpr std::size_t kMaxFactBytes = 400;

bool IsNamePart(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == ':';
}

// The part "torch.OutOfMemoryError" of "torch.OutOfMemoryError: tried to allocate ...": a dotted
// name at the start of the line that ends as names of exceptions do.
bool IsPythonException(std::string_view line) {
  std::size_t end = 0;
  while (end < line.size() && IsNamePart(line[end])) ++end;
  std::string_view name = line.substr(0, end);
  if (end < line.size() && line[end - (end > 0 ? 1 : 0)] != ':') return false;
  while (!name.empty() && name.back() == ':') name.remove_suffix(1);
  for (const std::string_view ending : {"Error", "Exception", "Interrupt", "Exit"}) {
    if (name.size() > ending.size() && name.ends_with(ending)) return true;
  }
  return false;
}

// What libstdc++ prints: terminate called after throwing an instance of 'std::bad_alloc'.
std::string CppException(std::string_view line) {
  constexpr std::string_view kIntroduction = "terminate called after throwing an instance of '";
  const std::size_t begin = line.find(kIntroduction);
  if (begin == std::string_view::npos) return "";
  const std::string_view rest = line.substr(begin + kIntroduction.size());
  return std::string(rest.substr(0, rest.find('\'')));
}

std::string WhatOf(const CauseEvidence& evidence) {
  std::string what;
  if (evidence.hang) {
    what = evidence.hang->what;
  } else if (evidence.exit) {
    what = DescribeExit({evidence.exit->exit_code, evidence.exit->signal});
    if (evidence.out_of_memory) what += " by the kernel's out-of-memory killer";
  } else {
    what = evidence.message;
  }
  const bool own_words = evidence.error && !evidence.error->message.empty();
  std::string exception = own_words ? evidence.error->message : ExceptionInLog(evidence.log_tail);
  // A killed rank's log ends with arbitrary output.
  if (evidence.exit && evidence.exit->signal == 9 && !own_words) exception.clear();
  if (!exception.empty() && what != exception) what += " (" + exception + ")";
  return CutText(std::move(what), kMaxWhatBytes);
}

void AddFact(CauseCard& card, std::string fact) {
  if (fact.empty() || card.facts.size() >= kMaxFacts) return;
  fact = CutText(std::move(fact), kMaxFactBytes);
  if (std::find(card.facts.begin(), card.facts.end(), fact) == card.facts.end()) {
    card.facts.push_back(std::move(fact));
  }
}

void FillPlace(const CauseEvidence& evidence, CauseCard& card) {
  if (evidence.last) {
    card.step = evidence.last->step;
    card.phase = TrainPhaseName(evidence.last->phase);
    card.micro_batch = evidence.last->micro_batch;
    card.last_collective = DescribeLastCollective(*evidence.last);
  }
  if (!evidence.last && evidence.error) card.step = evidence.error->step;
}

}  // namespace

std::string ExceptionInLog(const std::vector<std::string>& log_tail) {
  for (auto line = log_tail.rbegin(); line != log_tail.rend(); ++line) {
    if (IsPythonException(*line)) return *line;
    std::string name = CppException(*line);
    if (name.empty()) continue;
    // Its message is in the line that follows.
    constexpr std::string_view kWhat = "what():";
    if (line != log_tail.rbegin()) {
      const std::string& next = *std::prev(line);
      const std::size_t at = next.find(kWhat);
      if (at != std::string::npos) name += ":" + next.substr(at + kWhat.size());
    }
    return name;
  }
  return "";
}

CauseCard BuildCauseCard(const CauseEvidence& evidence, const JobSpec& spec) {
  CauseCard card;
  card.what = WhatOf(evidence);
  FillPlace(evidence, card);
  for (const std::string& fact : evidence.facts) AddFact(card, fact);
  if (evidence.hang) {
    for (const std::string& fact : evidence.hang->facts) AddFact(card, fact);
  }
  card.advice = AdviceFor(evidence, spec);
  return card;
}

}  // namespace muster
