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
  if (context.by_login != nullptr && *context.by_login) return "";
  if (!context.slurm_job.empty()) return "--slurm-job " + ShellWord(context.slurm_job);
  if (context.client.CheckIsLocal().ok()) return "--dir " + ShellWord(context.dir());
  const auto endpoint = context.client.FindEndpoint();
  // An endpoint that was given by its address has no other field yet.
  if (endpoint.ok() && endpoint->grpc.empty() && !endpoint->grpc_tls.empty())
    return "--coordinator " + endpoint->grpc_tls + " --tls DIR";
  return "--dir " + ShellWord(context.dir());
}

void PrintState(CommandContext& context, const std::string& job, v1::JobState state,
                const std::string& more, const Json& fields) {
  Json json = {{"id", job}, {"state", StateWord(state)}};
  json.update(fields);
  Print(context, "job", std::move(json), "id", more);
}

void PrintState(CommandContext& context, const std::string& node, v1::NodeState state,
                const std::string& more, const Json& fields) {
  Json json = {{"node", node}, {"state", StateWord(state)}};
  json.update(fields);
  Print(context, "node", std::move(json), "node", more);
}

CommandResult ChangeJobs(CommandContext& context, const std::vector<std::string>& jobs,
                         const std::function<Result<ChangedJob>(const std::string&)>& change,
                         OneJob one) {
  const bool list = jobs.size() > 1 || one == OneJob::kList;
  Terminal& terminal = context.terminal;
  Json changed = Json::array();
  int exit_code = kExitSuccess;
  for (const std::string& job : jobs) {
    const Result<ChangedJob> answer = change(job);
    if (!answer.ok() && jobs.size() == 1) return answer.status();
    if (answer.ok()) {
      if (context.for_people() || !list)
        PrintState(context, answer->id, answer->state, answer->more);
      changed.push_back({{"id", answer->id}, {"state", StateWord(answer->state)}});
    } else {
      terminal.err << "muster: " << answer.status().message() << "\n";
    }
    const int code = !answer.ok()       ? ExitCodeOf(answer.status())
                     : answer->as_asked ? kExitSuccess
                                        : kExitError;
    if (exit_code == kExitSuccess) exit_code = code;
    if (!answer.ok() && context.interrupt().requested()) break;
  }
  if (list) PrintStructured(terminal.out, context.output, changed, "id");
  return exit_code;
}

}  // namespace muster
