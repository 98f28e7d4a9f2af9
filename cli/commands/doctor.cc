// doctor: what of this machine helps or harms Muster, and what to change.

#include "cli/base/findings.h"
#include "cli/commands/verb.h"
#include "cli/machine/machine_advice.h"
#include "cli/machine/machine_facts.h"

namespace muster::verbs {

struct Doctor {
  static constexpr char kName[] = "doctor";
  static constexpr char kSummary[] = "Check this machine; suggest changes";

  std::vector<std::string> peers;

  void AddFlags(Flags& flags) {
    flags.Add("--peer HOST:PORT", peers,
              "Another node to connect to, on any port: a firewall is silent where a node refuses; "
              "repeatable");
    flags.SetFooter("Exits with 1 if a check fails; a warning is no failure.");
  }

  CommandResult Run(CommandContext& context) const {
    const MachineFacts facts = ReadMachine({.state_dir = context.dir(), .peers = peers});
    return PrintFindings(context.terminal.out, context.output, JudgeMachine(facts));
  }
};

template void AddVerb<Doctor>(CommandLine& line);

}  // namespace muster::verbs
