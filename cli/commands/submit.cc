#include <utility>

#include "cli/commands/commands.h"
#include "cli/commands/state_line.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"
#include "cli/ready_job.h"

namespace muster {
namespace {

constexpr auto kSubmitTimeout = std::chrono::seconds(10);

// The key makes it safe to say it again when the answer was lost.
Result<v1::SubmitResponse> SubmitWithRetries(CommandContext& context,
                                             const v1::SubmitRequest& request) {
  const Deadline deadline = Deadline::After(kSubmitTimeout);
  for (;;) {
    auto response = context.client.Submit(request);
    const bool again = !response.ok() && response.status().code() == StatusCode::kUnavailable &&
                       context.client.FindEndpoint().ok();
    if (!again || deadline.Expired()) return response;
    context.client.Disconnect();
    if (context.interrupt().WaitFor(std::chrono::milliseconds(200)))
      return Cancelled("interrupted");
  }
}

JobFileOptions FileOptions(const SubmitOptions& options) {
  return {.file = options.file,
          .name = options.name,
          .priority = options.priority,
          .overrides = options.overrides,
          .accelerate_config = options.accelerate_config};
}

CommandResult Follow(CommandContext& context, const std::string& id, SubmitFollow follow) {
  if (follow == SubmitFollow::kWait)
    return RunWait(context, {.job = id, .timeout = {}, .show_progress = true});
  return RunAttach(context, {.job = id});
}

}  // namespace

CommandResult RunSubmit(CommandContext& context, const SubmitOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const ReadyJob ready,
                          PrepareJob(FileOptions(options), context.terminal.err));
  Terminal& terminal = context.terminal;
  WarnOfMissingFiles(ready.spec, terminal.err);
  v1::SubmitRequest request;
  request.set_spec_yaml(ready.yaml);
  std::string key = options.key;
  if (key.empty()) {
    MUSTER_ASSIGN_OR_RETURN(key, RandomKey());
  }
  request.set_key(key);
  MUSTER_ASSIGN_OR_RETURN(const v1::SubmitResponse response, SubmitWithRetries(context, request));

  const Json json = {
      {"id", response.id()}, {"name", response.name()}, {"state", StateWord(response.state())}};
  // Standard output is one document: with --wait or --attach it is the job as it ended.
  const bool one_document =
      context.output == OutputFormat::kJson || context.output == OutputFormat::kYaml;
  const bool told_later = one_document && options.follow != SubmitFollow::kNone;
  if (!told_later && !PrintStructured(terminal.out, context.output, json, "id")) {
    Table table({"ID", "NAME", "STATE"});
    table.Add({response.id(), response.name(), StateWord(response.state())});
    table.Print(terminal.out, terminal.color);
    terminal.out.flush();
    if (response.existed() && !options.key.empty())
      terminal.err << "an earlier submit with this key made the job\n";
    if (options.follow == SubmitFollow::kNone)
      terminal.err << "next: muster attach " << response.id() << " " << SameCluster(context)
                   << "\n";
  }
  if (options.follow == SubmitFollow::kNone) return kExitSuccess;
  return Follow(context, response.id(), options.follow);
}

}  // namespace muster
