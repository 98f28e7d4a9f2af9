// page: where a browser finds the status page.

#include <unistd.h>

#include <array>

#include "cli/base/exit_code.h"
#include "cli/client/local_coordinators.h"
#include "cli/commands/verb.h"

namespace muster::verbs {
namespace {

// The port of the tunnel on the user's machine, unless it is taken there.
constexpr std::string_view kTunnelPort = "8440";

std::string OwnHostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "HOST";
}

}  // namespace

struct Page {
  static constexpr char kName[] = "page";
  static constexpr char kSummary[] = "Print the address of the status page";

  void AddFlags(Flags&) {}

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(Endpoint endpoint, context.client.AwaitEndpoint());
    const auto several = ReadLocalCoordinators(context.dir());
    if (several.ok() && context.client.CheckIsLocal().ok()) {
      MUSTER_ASSIGN_OR_RETURN(endpoint, FindLocalLeader(*several));
    }
    if (endpoint.page_key.empty())
      return NotFound(
          "the key of the status page is on the coordinator's machine; run muster page --dir DIR "
          "there, and use the tunnel that it prints");
    // A browser sends nothing after '#', so the key is in no request and in no log.
    const std::string fragment = "/#key=" + endpoint.page_key;
    const std::string url = "http://" + endpoint.http + fragment;
    const std::string tunnel =
        "ssh -N -L " + std::string(kTunnelPort) + ":" + endpoint.http + " " + OwnHostName();
    const std::string through = "http://127.0.0.1:" + std::string(kTunnelPort) + fragment;
    const Json json = {{"url", url}, {"tunnel", tunnel}, {"tunnel_url", through}};
    if (PrintStructured(context.terminal.out, context.output, json, "url")) return kExitSuccess;
    context.terminal.out << "local        " << url << "\n"
                         << "remote       " << tunnel << "\n"
                         << "             " << through << "\n"
                         << "Anyone with the key in the address can read the page until the "
                            "coordinator exits.\n";
    return kExitSuccess;
  }
};

template void AddVerb<Page>(CommandLine& line);

}  // namespace muster::verbs
