// Files that a command checks and applies to the cluster: queues and users.
//
// One thread.
#pragma once

#include <string>

#include "cli/client/command_context.h"
#include "common/base/text.h"
#include "common/job_spec/job_file.h"

namespace muster {

inline constexpr char kAppliedVersionHelp[] =
    "Version that the file replaces; if another one is in force, nothing is changed [default: the "
    "one in force now]";

// The request with the file's text; "-" reads standard input. `what`: "queue file".
template <typename Request>
Result<Request> RequestWithFile(const std::string& path, const std::string& what) {
  const auto file = ReadJobFile(path);
  if (!file.ok()) return file.status().WithContext("cannot read the " + what);
  // Messages carry nothing else, so that the coordinator could not say what is wrong.
  if (ValidUtf8(file->text) != file->text) return InvalidArgument(file->name + ": is not UTF-8");
  Request request;
  request.set_yaml(file->text);
  request.set_file(file->name);
  return request;
}

// What the file changes, or would change, below a line that says so.
template <typename Response>
void PrintFileChanges(CommandContext& context, const Response& response, bool applied) {
  Terminal& terminal = context.terminal;
  Json json = {{"version", response.version()}, {"changes", Json::array()}};
  for (const std::string& change : response.changes()) json["changes"].push_back(change);
  if constexpr (requires { response.warnings(); }) {
    json["warnings"] = Json::array();
    for (const std::string& warning : response.warnings()) {
      json["warnings"].push_back(warning);
      terminal.err << "muster: warning: " << Printable(warning) << "\n";
    }
  }
  if (PrintStructured(terminal.out, context.output, json, "version")) return;
  const std::string version = "version " + std::to_string(response.version());
  const bool none = response.changes().empty();
  if (applied)
    terminal.out << version << " is in force" << (none ? "; nothing changed" : ":") << "\n";
  else
    terminal.out << (none ? "valid; would change nothing in " + version
                          : "valid; would change in " + version + ":")
                 << "\n";
  for (const std::string& change : response.changes())
    terminal.out << "  " << Printable(change) << "\n";
}

}  // namespace muster
