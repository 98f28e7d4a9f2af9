#include "worker/agent/owner_answers.h"

#include "common/base/proc_reader.h"

namespace muster::worker {
namespace {

using Json = nlohmann::json;

// Null: there is none.
const Json& ListIn(const Json& answer, const char* name) {
  static const Json kNone;
  const auto field = answer.find(name);
  return field != answer.end() && field->is_array() ? *field : kNone;
}

}  // namespace

bool FlagIn(const Json& answer, const char* name) {
  const auto field = answer.find(name);
  return field != answer.end() && *field == true;
}

std::string TextIn(const Json& answer, const char* name) {
  const auto field = answer.find(name);
  return field != answer.end() && field->is_string() ? field->get<std::string>() : "";
}

std::vector<std::string> TextsIn(const Json& answer, const char* name) {
  std::vector<std::string> texts;
  for (const Json& one : ListIn(answer, name))
    if (one.is_string()) texts.push_back(one.get<std::string>());
  return texts;
}

OwnersPart PartIn(const Json& answer) {
  return {.status = StatusIn(answer), .retryable = FlagIn(answer, "retryable")};
}

std::optional<TerminationProof> ProofIn(const Json& answer, const JobId& job,
                                        Generation generation) {
  const bool failed = answer.contains("code") && !StatusIn(answer).ok();
  if (failed || !ListIn(answer, "exited").is_array()) return std::nullopt;
  TerminationProof proof{.exited = {}, .unkillable = {}, .stopped = FlagIn(answer, "stopped")};
  for (const Json& one : ListIn(answer, "exited")) {
    auto exited = ReportIn<RankExited>(Json{{"report", one}});
    if (!exited.ok() || exited->generation != generation) continue;
    exited->job = job;
    proof.exited.push_back(*std::move(exited));
  }
  for (const Json& one : ListIn(answer, "unkillable"))
    if (const auto info = ReadProcess(one.is_number_integer() ? one.get<pid_t>() : 0); info.ok())
      proof.unkillable.push_back(*info);
  return proof;
}

}  // namespace muster::worker
