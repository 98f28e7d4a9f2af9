// queues: the cluster's queues, as a file that is checked, applied and shown.

#include <cstdint>
#include <map>
#include <optional>

#include "cli/base/exit_code.h"
#include "cli/client/applied_file.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "cli/jobs/queue_texts.h"

namespace muster::verbs {
namespace {

constexpr char kFileHelp[] = "Queue file; - reads standard input";
constexpr char kExamples[] =
    "Examples:\n"
    "  muster queues show -o yaml > queues.yaml\n"
    "  muster queues check queues.yaml\n"
    "  muster queues apply queues.yaml";

Result<v1::ApplyQueuesRequest> RequestWith(const std::string& path) {
  return RequestWithFile<v1::ApplyQueuesRequest>(path, "queue file");
}

Json QueuesJson(const v1::ShowQueuesResponse& queues) {
  Json json = {{"version", queues.version()},
               {"half_life_seconds", queues.half_life_seconds()},
               {"classes", Json::object()},
               {"queues", QueueListJson(queues)},
               {"file", queues.yaml()}};
  for (const auto& each : queues.classes()) json["classes"][each.name()] = each.value();
  return json;
}

std::string ShortNumber(double value) {
  std::string text = Fixed(value, 3);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

// A queue stands below its parent, two blanks to the right.
void PrintTable(CommandContext& context, const v1::ShowQueuesResponse& queues) {
  const bool wide = context.output == OutputFormat::kWide;
  std::vector<std::string> headers = {"QUEUE", "GUARANTEE", "CEILING", "WEIGHT", "SHARE",
                                      "HAD",   "USED",      "RUNNING", "WAITING"};
  if (wide) headers.insert(headers.end(), {"PRIORITY", "TIME LIMIT", "PER USER"});
  Table table(headers);
  std::map<std::string, std::size_t> depths;
  for (const auto& queue : queues.queues()) {
    const std::size_t depth = queue.parent().empty() ? 0 : depths[queue.parent()] + 1;
    depths[queue.name()] = depth;
    std::vector<std::string> row = {std::string(2 * depth, ' ') + queue.name(),
                                    AmountText(queue.guarantee()),
                                    AmountText(queue.ceiling()),
                                    ShortNumber(queue.weight()),
                                    Fixed(100 * queue.share(), 0) + "%",
                                    Fixed(100 * queue.usage_share(), 0) + "%",
                                    AmountText(queue.used()),
                                    std::to_string(queue.running()),
                                    std::to_string(queue.waiting())};
    if (wide)
      row.insert(row.end(), {std::to_string(queue.priority()),
                             queue.time_limit_seconds() == 0
                                 ? "-"
                                 : HumanSeconds(static_cast<double>(queue.time_limit_seconds())),
                             UserLimitsText(queue)});
    table.Add(std::move(row));
  }
  table.Print(context.terminal.out, context.terminal.color);
  std::string classes;
  for (const auto& each : queues.classes())
    classes += (classes.empty() ? "" : ", ") + each.name() + " " + std::to_string(each.value());
  if (wide)
    context.terminal.out << "\nversion " << queues.version() << "; classes: " << classes
                         << "; half-life of usage: "
                         << HumanSeconds(static_cast<double>(queues.half_life_seconds())) << "\n";
}

}  // namespace

struct QueuesCheck {
  static constexpr char kName[] = "check";
  static constexpr char kSummary[] = "Check a queue file, and show what it would change";

  std::string file;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, kFileHelp).Required();
    flags.SetFooter(kExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(v1::ApplyQueuesRequest request, RequestWith(file));
    request.set_check_only(true);
    MUSTER_ASSIGN_OR_RETURN(const v1::ApplyQueuesResponse response,
                            ClusterAdmin(context.client).ApplyQueues(request));
    PrintFileChanges(context, response, /*applied=*/false);
    return kExitSuccess;
  }
};

struct QueuesApply {
  static constexpr char kName[] = "apply";
  static constexpr char kSummary[] =
      "Apply a queue file: it takes effect at once, without a restart";

  std::string file;
  std::optional<int> version;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, kFileHelp).Required();
    flags.Add("--version N", version, kAppliedVersionHelp).AtLeast(0);
    flags.SetFooter(kExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(v1::ApplyQueuesRequest request, RequestWith(file));
    if (version) {
      request.set_expected_version(static_cast<std::uint64_t>(*version));
    } else {
      MUSTER_ASSIGN_OR_RETURN(const v1::ShowQueuesResponse now,
                              ClusterAdmin(context.client).ShowQueues());
      request.set_expected_version(now.version());
    }
    MUSTER_ASSIGN_OR_RETURN(const v1::ApplyQueuesResponse response,
                            ClusterAdmin(context.client).ApplyQueues(request));
    PrintFileChanges(context, response, /*applied=*/true);
    return kExitSuccess;
  }
};

struct QueuesShow {
  static constexpr char kName[] = "show";
  static constexpr char kSummary[] =
      "Show the queues and what they have; -o yaml prints the file that was applied";

  void AddFlags(Flags& flags) { flags.SetFooter(kExamples); }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::ShowQueuesResponse queues,
                            ClusterAdmin(context.client).ShowQueues());
    std::ostream& out = context.terminal.out;
    if (context.output == OutputFormat::kYaml) {
      out << queues.yaml();
      return kExitSuccess;
    }
    const Json json = QueuesJson(queues);
    const bool each =
        context.output == OutputFormat::kJsonl || context.output == OutputFormat::kName;
    if (!PrintStructured(out, context.output, each ? json["queues"] : json, "name"))
      PrintTable(context, queues);
    return kExitSuccess;
  }
};

template void AddVerb<QueuesCheck>(CommandLine& line);
template void AddVerb<QueuesApply>(CommandLine& line);
template void AddVerb<QueuesShow>(CommandLine& line);

}  // namespace muster::verbs
