#include "cli/commands/state_line.h"

#include "cli/exit_code.h"

namespace muster {

std::string SameCluster(const CommandContext& context) {
  const auto endpoint = context.client.FindEndpoint();
  // One that was named by its address has told nothing else yet.
  if (endpoint.ok() && endpoint->grpc.empty() && !endpoint->grpc_tls.empty())
    return "--coordinator " + endpoint->grpc_tls + " --tls CREDENTIALS";
  return "--dir " + ShellWord(context.dir());
}

void PrintStateLine(CommandContext& context, const StateLine& line) {
  Json json = {{line.key, line.name}, {"state", line.state}};
  json.update(line.fields);
  std::ostream& out = context.terminal.out;
  if (PrintStructured(out, context.output, json, line.key)) return;
  out << line.kind << " " << line.name << " is " << line.state << line.more << "\n";
}

}  // namespace muster
