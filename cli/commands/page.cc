// page: where a browser finds the coordinator's status page.

#include <unistd.h>

#include <array>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"

namespace muster {
namespace {

// Where the page is on the machine of whoever looks, unless that port is taken there.
constexpr std::string_view kTunnelPort = "8440";

std::string OwnHostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "HOST";
}

}  // namespace

CommandResult RunPage(CommandContext& context) {
  MUSTER_ASSIGN_OR_RETURN(const Endpoint endpoint, context.client.FindEndpoint());
  if (endpoint.page_key.empty())
    return NotFound(
        "the key of the status page lies with its coordinator; run 'muster page --dir DIR' on that "
        "machine, and use the tunnel that it names");
  // Behind '#', a browser keeps it to itself: it is in no request, and in nobody's log.
  const std::string fragment = "/#key=" + endpoint.page_key;
  const std::string url = "http://" + endpoint.http + fragment;
  const std::string tunnel =
      "ssh -N -L " + std::string(kTunnelPort) + ":" + endpoint.http + " " + OwnHostName();
  const std::string through = "http://127.0.0.1:" + std::string(kTunnelPort) + fragment;
  const Json json = {{"url", url}, {"tunnel", tunnel}, {"tunnel_url", through}};
  if (PrintStructured(context.terminal.out, context.output, json, "url")) return kExitSuccess;
  context.terminal.out << "here         " << url << "\n"
                       << "elsewhere    " << tunnel << "\n"
                       << "             " << through << "\n"
                       << "whoever has the key reads all of it; it is good until the coordinator "
                          "ends\n";
  return kExitSuccess;
}

}  // namespace muster
