#include <algorithm>

#include "cli/commands/slurm.h"
#include "cli/exit_code.h"
#include "common/slurm/doctor.h"

namespace muster {
namespace {

std::string WordOf(slurm::Verdict verdict) {
  switch (verdict) {
    case slurm::Verdict::kOk: return "ok";
    case slurm::Verdict::kWarn: return "warn";
    case slurm::Verdict::kFail: return "fail";
  }
  return "fail";
}

void PrintForPeople(std::ostream& out, const std::vector<slurm::Finding>& findings) {
  for (const slurm::Finding& finding : findings) {
    std::string verdict = WordOf(finding.verdict);
    verdict.resize(6, ' ');
    out << verdict << finding.check << ": " << Printable(finding.what) << "\n";
    if (!finding.change.empty()) out << "      " << Printable(finding.change) << "\n";
  }
}

}  // namespace

CommandResult RunSlurmDoctor(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmDoctorOptions& options) {
  slurm::DoctorQuestion question{.config = {},
                                 .partitions = {},
                                 .partition = options.partition,
                                 .checkpoint_seconds = options.checkpoint_seconds,
                                 .signal_lead_seconds = options.signal_lead_seconds};
  MUSTER_ASSIGN_OR_RETURN(question.config, commands.Config());
  MUSTER_ASSIGN_OR_RETURN(question.partitions, commands.Partitions());
  const std::vector<slurm::Finding> findings = slurm::JudgeSettings(question);
  Json json = Json::array();
  for (const slurm::Finding& finding : findings)
    json.push_back({{"check", finding.check},
                    {"verdict", WordOf(finding.verdict)},
                    {"what", finding.what},
                    {"change", finding.change.empty() ? Json(nullptr) : Json(finding.change)}});
  if (!PrintStructured(context.terminal.out, context.output, json, "check"))
    PrintForPeople(context.terminal.out, findings);
  const bool failed = std::any_of(
      findings.begin(), findings.end(),
      [](const slurm::Finding& finding) { return finding.verdict == slurm::Verdict::kFail; });
  return failed ? kExitError : kExitSuccess;
}

}  // namespace muster
