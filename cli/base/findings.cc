#include "cli/base/findings.h"

#include <algorithm>

#include "cli/base/exit_code.h"

namespace muster {
namespace {

std::string WordOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kWarn: return "warn";
    case Verdict::kFail: return "fail";
  }
  return "fail";
}

Json ToJson(const Finding& finding) {
  return {{"check", finding.check},
          {"verdict", WordOf(finding.verdict)},
          {"what", finding.what},
          {"change", TextOrNull(finding.change)},
          {"command", TextOrNull(finding.command)}};
}

}  // namespace

int PrintFindings(std::ostream& out, OutputFormat format, const std::vector<Finding>& findings) {
  Json json = Json::array();
  for (const Finding& finding : findings) json.push_back(ToJson(finding));
  if (!PrintStructured(out, format, json, "check")) {
    for (const Finding& finding : findings) {
      std::string verdict = WordOf(finding.verdict);
      verdict.resize(6, ' ');
      out << verdict << finding.check << ": " << Printable(finding.what) << "\n";
      if (!finding.change.empty()) out << "      " << Printable(finding.change) << "\n";
      if (!finding.command.empty()) out << "      $ " << Printable(finding.command) << "\n";
    }
  }
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; })
             ? kExitError
             : kExitSuccess;
}

}  // namespace muster
