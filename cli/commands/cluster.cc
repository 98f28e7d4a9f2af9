// up, down, page, version: the cluster itself.

#include <unistd.h>

#include <array>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "common/base/version.h"

namespace muster {
namespace {

// Where the page is on the machine of whoever looks, unless that port is taken there.
constexpr std::string_view kTunnelPort = "8440";

std::string OwnHostName() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "HOST";
}

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : ", ") + word;
  return out;
}

}  // namespace

CommandResult RunUp(CommandContext& context, const UpOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const std::string binaries, OwnBinaryDirectory());
  MUSTER_ASSIGN_OR_RETURN(const UpReport report,
                          LocalCluster(context.client, binaries).Up(options));
  const Json json = {{"dir", context.dir()},
                     {"endpoint", report.endpoint.grpc},
                     {"http", report.endpoint.http},
                     {"pid", report.endpoint.pid},
                     {"started", report.started},
                     {"nodes", NodeListJson(report.nodes)},
                     {"network_namespace", report.network_namespace}};
  if (PrintStructured(context.terminal.out, context.output, json, "dir")) return kExitSuccess;
  std::ostream& out = context.terminal.out;
  if (report.started.empty())
    out << "the cluster in " << context.dir() << " is already up\n";
  else
    out << "started " << Joined(report.started) << "\n";
  out << "cluster      " << context.dir() << "\n"
      << "coordinator  " << report.endpoint.grpc << " (pid " << report.endpoint.pid << ")\n"
      << "metrics      http://" << report.endpoint.http << "/metrics"
      << (report.network_namespace.empty() ? "" : " in namespace " + report.network_namespace)
      << "\n"
      << "nodes        " << report.nodes.nodes_size() << " ready\n"
      << "page         muster page --dir " << ShellWord(context.dir()) << "\n"
      << "next         muster submit FILE --dir " << ShellWord(context.dir()) << "\n";
  return kExitSuccess;
}

CommandResult RunDown(CommandContext& context, const DownOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const DownReport report,
                          LocalCluster(context.client, "").Down(options.timeout));
  const Json json = {{"dir", context.dir()}, {"ended", report.ended}, {"left", report.left}};
  if (!PrintStructured(context.terminal.out, context.output, json, "dir")) {
    if (report.ended.empty() && report.left.empty())
      context.terminal.out << "nothing runs in " << context.dir() << "\n";
    for (const std::string& process : report.ended)
      context.terminal.out << "ended " << process << "\n";
  }
  if (report.left.empty()) return kExitSuccess;
  return Internal("could not end " + Joined(report.left) +
                  "; a process in an uninterruptible wait ends when its device answers");
}

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

CommandResult RunVersion(CommandContext& context) {
  Json json = {{"version", kVersion}, {"protocol_version", kProtocolVersion}};
  json["coordinator"] = nullptr;
  // No cluster is a fine answer here; one that refuses the token is not asked further.
  if (const auto version = context.client.Version(); version.ok())
    json["coordinator"] = {{"version", version->version()},
                           {"protocol_version", version->protocol_version()},
                           {"cluster", version->cluster()}};
  if (PrintStructured(context.terminal.out, context.output, json, "version")) return kExitSuccess;
  context.terminal.out << "muster " << kVersion << " (protocol " << kProtocolVersion << ")\n";
  if (!json["coordinator"].is_null())
    context.terminal.out << "coordinator " << json["coordinator"]["version"].get<std::string>()
                         << " (protocol " << json["coordinator"]["protocol_version"] << ") in "
                         << context.dir() << "\n";
  return kExitSuccess;
}

}  // namespace muster
