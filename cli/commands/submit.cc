// submit: hands a job to the coordinator.

#include <optional>

#include "cli/base/exit_code.h"
#include "cli/client/ready_job.h"
#include "cli/commands/job_file_flags.h"
#include "cli/commands/verb.h"
#include "cli/follow/follow_job.h"
#include "cli/jobs/job_json.h"

namespace muster::verbs {
namespace {

constexpr auto kSubmitTimeout = std::chrono::seconds(10);

// The key makes a second attempt safe when the first answer was lost.
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

}  // namespace

struct Submit {
  static constexpr char kName[] = "submit";
  static constexpr char kSummary[] = "Submit a job";

  JobFileOptions job;
  std::string key;
  std::optional<std::int64_t> check_index;
  bool wait = false;
  bool attach = false;

  void AddFlags(Flags& flags) {
    AddJobFileFlags(flags, job);
    flags.Add("--key KEY", key,
              "Idempotency key: the same key and job file return the same job [default: random]");
    flags
        .Add("--check-index N", check_index,
             "Submit only if nothing that matters has changed since muster plan printed N")
        .AtLeast(1);
    const Flag waits =
        flags.Add("--wait", wait, "Show progress until the job ends; exit with its result");
    flags.Add("--attach", attach, "Follow the job as muster attach does").Excludes(waits);
  }

  CommandResult Run(CommandContext& context) const {
    Terminal& terminal = context.terminal;
    MUSTER_ASSIGN_OR_RETURN(const ReadyJob ready, PrepareJob(job, terminal.err));
    if (!key.empty() && ready.relative_begin)
      return InvalidArgument(
          "begin counts from now, so a repeated submit would send another job file, which its "
          "--key "
          "refuses\n  next: give a begin with a date, or leave --key out");
    WarnOfMissingFiles(ready.spec, terminal.err);
    v1::SubmitRequest request;
    request.set_spec_yaml(ready.yaml);
    request.set_key(key);
    if (check_index) request.set_check_index(static_cast<std::uint64_t>(*check_index));
    if (key.empty()) {
      MUSTER_ASSIGN_OR_RETURN(*request.mutable_key(), RandomKey());
    }
    MUSTER_ASSIGN_OR_RETURN(const v1::SubmitResponse response, SubmitWithRetries(context, request));

    const Json json = {
        {"id", response.id()}, {"name", response.name()}, {"state", StateWord(response.state())}};
    // Standard output is one document, or one name: with --wait or --attach that of the job as it
    // ended.
    const bool one_document = !context.for_people() && context.output != OutputFormat::kJsonl;
    const bool printed_later = one_document && (wait || attach);
    if (!printed_later && !PrintStructured(terminal.out, context.output, json, "id")) {
      Table table({"ID", "NAME", "STATE"});
      table.Add({response.id(), response.name(), StateWord(response.state())});
      table.Print(terminal.out, terminal.color);
      terminal.out.flush();
      if (response.existed() && !key.empty())
        terminal.err << "an earlier submit with this key created the job\n";
      if (!wait && !attach)
        terminal.err << "next: muster attach " << response.id() << " " << SameCluster(context)
                     << "\n";
    }
    if (wait)
      return WaitForJob(context, {.job = response.id(), .timeout = {}, .show_progress = true});
    return attach ? AttachToJob(context, {.job = response.id()}) : CommandResult(kExitSuccess);
  }
};

template void AddVerb<Submit>(CommandLine& line);

}  // namespace muster::verbs
