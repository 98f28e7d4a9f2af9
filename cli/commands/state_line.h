// What commands print that have changed the state of a job or of a node, and the flags by which the
// next command reaches the same cluster. One thread.
#pragma once

#include <string>

#include "cli/commands/commands.h"

namespace muster {

struct StateLine {
  std::string kind;              // "job", "node": before its name in the line
  std::string key;               // of its name in JSON
  std::string name;              // as `-o name` prints it
  std::string state;             // StateWord's
  std::string more;              // the rest of the line, as it stands there
  Json fields = Json::object();  // beside its name and `state` in JSON
};

// "--dir DIR", or "--coordinator IP:PORT --tls CREDENTIALS" of a coordinator on another machine.
std::string SameCluster(const CommandContext& context);

// "job 7f3a9c1e2b is stopping; it saves its state first", or what --output asks for.
void PrintStateLine(CommandContext& context, const StateLine& line);

}  // namespace muster
