// up, down, version: the cluster itself.

#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "common/base/version.h"

namespace muster {
namespace {

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
