// What the file server of an account answers, as values. The other end may be anything that runs as
// the account: a field that is missing or of another kind is as if it said no.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/json.h"
#include "common/base/result.h"
#include "common/wire/messages.h"
#include "worker/agent/job_records.h"
#include "worker/agent/owner_frames.h"
#include "worker/agent/preflight.h"

namespace muster::worker {

bool FlagIn(const nlohmann::json& answer, const char* name);
std::string TextIn(const nlohmann::json& answer, const char* name);
std::vector<std::string> TextsIn(const nlohmann::json& answer, const char* name);

OwnersPart PartIn(const nlohmann::json& answer);
// Takes from it what is about this job and generation, and looks at processes that it calls alive.
// Empty: the answer is an error, or no proof.
std::optional<TerminationProof> ProofIn(const nlohmann::json& answer, const JobId& job,
                                        Generation generation);

// kDataLoss: it is another report, or none.
template <typename Report>
Result<Report> ReportIn(const nlohmann::json& answer) {
  const auto field = answer.find("report");
  MUSTER_ASSIGN_OR_RETURN(
      WorkerMessage message,
      UnpackReport(field == answer.end() ? nlohmann::json() : nlohmann::json(*field)));
  if (Report* report = std::get_if<Report>(&message)) return std::move(*report);
  return DataLoss("the file server of the account answers something else");
}

}  // namespace muster::worker
