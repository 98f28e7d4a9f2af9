#include "cli/client/command_context.h"

#include <utility>

#include "cli/base/exit_code.h"
#include "cli/jobs/job_json.h"

namespace muster {
namespace {

void Print(CommandContext& context, const char* kind, Json json, const char* key,
           const std::string& more) {
  std::ostream& out = context.terminal.out;
  if (PrintStructured(out, context.output, json, key)) return;
  out << kind << " " << json[key].get<std::string>() << " is " << json["state"].get<std::string>()
      << more << "\n";
}

}  // namespace

std::string SameCluster(const CommandContext& context) {
  const auto endpoint = context.client.FindEndpoint();
  // An endpoint that was given by its address has no other field yet.
  if (endpoint.ok() && endpoint->grpc.empty() && !endpoint->grpc_tls.empty())
    return "--coordinator " + endpoint->grpc_tls + " --tls DIR";
  return "--dir " + ShellWord(context.dir());
}

void PrintState(CommandContext& context, const std::string& job, v1::JobState state,
                const std::string& more) {
  Print(context, "job", {{"id", job}, {"state", StateWord(state)}}, "id", more);
}

void PrintState(CommandContext& context, const std::string& node, v1::NodeState state,
                const std::string& more, const Json& fields) {
  Json json = {{"node", node}, {"state", StateWord(state)}};
  json.update(fields);
  Print(context, "node", std::move(json), "node", more);
}

}  // namespace muster
