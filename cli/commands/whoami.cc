// whoami: who the coordinator takes the caller for, and the caller's roles.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/user_texts.h"

namespace muster::verbs {

struct WhoAmI {
  static constexpr char kName[] = "whoami";
  static constexpr char kSummary[] = "Show who the coordinator takes you for, and your roles";

  void AddFlags(Flags&) {}

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::WhoAmIResponse me, ClusterAdmin(context.client).WhoAmI());
    const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
    const Json json = {{"name", me.name()},          {"kind", me.kind()},
                       {"as", text(me.as_user())},   {"cluster", text(me.cluster())},
                       {"disabled", me.disabled()},  {"roles", RolesJson(me.roles())},
                       {"has_users", me.has_users()}};
    std::ostream& out = context.terminal.out;
    if (PrintStructured(out, context.output, json, "name")) return kExitSuccess;
    out << me.kind() << " " << me.name();
    if (!me.as_user().empty()) out << " for " << me.as_user();
    if (!me.cluster().empty()) out << " in cluster " << me.cluster();
    out << "\nroles: " << RolesText(me.roles()) << (me.disabled() ? " (disabled)" : "") << "\n";
    if (!me.has_users()) out << "this cluster has no users\n";
    return kExitSuccess;
  }
};

template void AddVerb<WhoAmI>(CommandLine& line);

}  // namespace muster::verbs
