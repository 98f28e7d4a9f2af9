// events: what happened to a job, or to the cluster.

#include <algorithm>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/follow/reconnect.h"

namespace muster::verbs {
namespace {

constexpr auto kEventsPause = std::chrono::milliseconds(200);

Json EventJson(const v1::Event& event) {
  return {{"seq", event.seq()},
          {"time", TimeOrNull(event.unix_ms())},
          {"job", TextOrNull(event.job())},
          {"generation", event.generation() > 0 ? Json(event.generation()) : Json(nullptr)},
          {"kind", event.kind()},
          {"severity", event.severity()},
          {"message", event.message()}};
}

void PrintEvents(CommandContext& context, const v1::ListEventsResponse& events) {
  Terminal& terminal = context.terminal;
  for (const auto& event : events.events()) {
    if (context.for_people()) {
      const bool wide = context.output == OutputFormat::kWide;
      terminal.out << LocalTime(event.unix_ms()) << "  " << OrDash(event.job()) << "  "
                   << (wide ? event.severity() + "  " + event.kind() + "  " : "")
                   << Printable(event.message()) << '\n';
    } else {
      PrintStructured(terminal.out, OutputFormat::kJsonl, EventJson(event), "seq");
    }
  }
  terminal.out.flush();
}

}  // namespace

struct Events {
  static constexpr char kName[] = "events";
  static constexpr char kSummary[] = "Show events of a job or of the cluster";

  std::string job;
  bool follow = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp);
    flags.Add("-f,--follow", follow, "Follow new events until interrupted");
  }

  CommandResult Run(CommandContext& context) const {
    v1::ListEventsRequest request;
    request.set_job(job);
    const bool whole =
        !follow && (context.output == OutputFormat::kJson || context.output == OutputFormat::kYaml);
    Json all = Json::array();
    Reconnect reconnect(context);
    for (;;) {
      const Result<v1::ListEventsResponse> answer = context.client.ListEvents(request);
      if (context.interrupt().requested()) return kExitInterrupted;
      if (!answer.ok()) {
        if (!follow) return answer.status();
        MUSTER_RETURN_IF_ERROR(reconnect.Pause(answer.status()));
        continue;
      }
      reconnect.Answered();
      const v1::ListEventsResponse& events = *answer;
      for (const auto& event : events.events()) {
        request.set_after_seq(std::max(request.after_seq(), event.seq()));
        if (whole) all.push_back(EventJson(event));
      }
      if (!whole) PrintEvents(context, events);
      if (!context.terminal.out) return kExitSuccess;  // reported where all output ends
      if (!events.events().empty()) continue;          // there may be more than one call's worth
      if (!follow) break;
      if (context.interrupt().WaitFor(kEventsPause)) return kExitInterrupted;
    }
    if (whole) PrintStructured(context.terminal.out, context.output, all, "seq");
    return kExitSuccess;
  }
};

template void AddVerb<Events>(CommandLine& line);

}  // namespace muster::verbs
