// undrain: returns a node to service.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"

namespace muster::verbs {

struct Undrain {
  static constexpr char kName[] = "undrain";
  static constexpr char kSummary[] = "Return a drained or quarantined node to service";

  std::string node;

  void AddFlags(Flags& flags) { flags.Add("NODE", node, "Node name").Required(); }

  CommandResult Run(CommandContext& context) const {
    v1::UndrainRequest request;
    request.set_node(node);
    MUSTER_ASSIGN_OR_RETURN(const v1::UndrainResponse response, context.client.Undrain(request));
    PrintState(context, node, response.state());
    return kExitSuccess;
  }
};

template void AddVerb<Undrain>(CommandLine& line);

}  // namespace muster::verbs
