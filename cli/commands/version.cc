// version: the versions of this program and of the coordinator.

#include "common/base/version.h"

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/upgrade/build.h"

namespace muster::verbs {

struct Version {
  static constexpr char kName[] = "version";
  static constexpr char kSummary[] = "Print the versions of muster and of the coordinator";

  void AddFlags(Flags&) {}

  CommandResult Run(CommandContext& context) const {
    Json json = {{"version", kVersion},
                 {"protocol_version", kProtocolVersion},
                 {"versions", upgrade::TableJson(upgrade::OwnBuild())}};
    json["coordinator"] = nullptr;
    // Without a coordinator that answers, the program's own version is the result.
    if (const auto version = context.client.Version(); version.ok())
      json["coordinator"] = {{"version", version->version()},
                             {"protocol_version", version->protocol_version()},
                             {"cluster", version->cluster()},
                             {"store", TextOrNull(version->store())},
                             {"versions", upgrade::TableJson(upgrade::BuildOf(*version))}};
    std::ostream& out = context.terminal.out;
    if (PrintStructured(out, context.output, json, "version")) return kExitSuccess;
    out << "muster " << kVersion << " (protocol " << kProtocolVersion << ")\n";
    if (!json["coordinator"].is_null())
      out << "coordinator " << json["coordinator"]["version"].get<std::string>() << " (protocol "
          << json["coordinator"]["protocol_version"] << ") of cluster "
          << json["coordinator"]["cluster"].get<std::string>() << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<Version>(CommandLine& line);

}  // namespace muster::verbs
