// fault: injects a failure, so that a recovery can be rehearsed.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/local/local_cluster.h"
#include "common/base/fault_kinds.h"

namespace muster::verbs {
namespace {

std::optional<double> ParseNumber(std::string_view text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// "30%" and "0.3" are the fraction 0.3.
Result<std::string> Fraction(const std::string& text) {
  const bool percent = text.ends_with('%');
  const auto number = ParseNumber(std::string_view(text).substr(0, text.size() - percent));
  if (!number || *number <= 0 || *number > (percent ? 10000 : 100))
    return InvalidArgument("slow=" + text +
                           ": expected by how much a step takes longer, such as 30%");
  return Fixed(percent ? *number / 100 : *number, 4);
}

Result<std::string> ExitCode(const std::string& text) {
  const auto number = ParseNumber(text);
  if (!number || *number != std::floor(*number) || *number < 0 || *number > 255)
    return InvalidArgument("exit=" + text + ": expected an exit code from 0 to 255");
  return text;
}

struct FaultKind {
  std::string kind;
  std::string argument;  // as the coordinator takes it: "0.3000" of slow=30%
};

Result<FaultKind> ParseFaultKind(const std::string& text) {
  const std::size_t equals = text.find('=');
  FaultKind fault{text.substr(0, equals), ""};
  const bool takes_argument = fault.kind == "slow" || fault.kind == "exit";
  if (takes_argument != (equals != std::string::npos))
    return InvalidArgument(
        "--kind " + text +
        (takes_argument ? ": expected a value, as in slow=30% or exit=3" : ": unexpected value"));
  if (!takes_argument) return fault;
  const std::string argument = text.substr(equals + 1);
  MUSTER_ASSIGN_OR_RETURN(fault.argument,
                          fault.kind == "slow" ? Fraction(argument) : ExitCode(argument));
  return fault;
}

// The link is cut on this machine, because the coordinator could not reach the node to restore it.
// The coordinator records the fault first, in the history of every job that it affects.
CommandResult TakeLink(CommandContext& context, const v1::InjectFaultRequest& request) {
  const bool up = request.kind() == "link-up";
  LocalCluster cluster(context.client, "");
  MUSTER_RETURN_IF_ERROR(cluster.CheckLink(request.node()));
  const auto recorded = context.client.InjectFault(request);
  // A link can be restored without the coordinator, which may need that node to come back.
  const bool away = recorded.status().code() == StatusCode::kUnavailable ||
                    recorded.status().code() == StatusCode::kDeadlineExceeded;
  if (!recorded.ok() && !(up && away)) return recorded.status();
  if (!recorded.ok())
    context.terminal.err << "muster: warning: the coordinator did not record the fault: "
                         << recorded.status().message() << "\n";
  MUSTER_RETURN_IF_ERROR(cluster.SetLink(request.node(), up));
  const Json json = {{"node", request.node()}, {"kind", request.kind()}, {"generation", nullptr}};
  if (PrintStructured(context.terminal.out, context.output, json, "node")) return kExitSuccess;
  context.terminal.out << "the link of " << request.node() << " is " << (up ? "up" : "down")
                       << "\n";
  return kExitSuccess;
}

}  // namespace

struct Fault {
  static constexpr char kName[] = "fault";
  static constexpr char kSummary[] = "Inject a fault into a cluster that runs with --allow-faults";

  std::string job;
  int rank = 0;
  std::string node;
  std::string kind;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp);
    flags.Add("--rank N", rank, "Rank of the job [default: 0]").AtLeast(0);
    flags.Add("--node NODE", node, "Node, instead of a rank of a job");
    flags
        .Add(
            "--kind KIND", kind,
            "For a rank: kill, stop, cont, hang-data, hang-collective, nan, oom, slow=30%, exit=3; "
            "for a node: kill-node, stop-worker, link-down, link-up")
        .Required();
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const FaultKind fault, ParseFaultKind(kind));
    MUSTER_RETURN_IF_ERROR(CheckTarget(fault.kind));
    v1::InjectFaultRequest request;
    request.set_job(job);
    request.set_rank(rank);
    request.set_node(node);
    request.set_kind(fault.kind);
    request.set_argument(fault.argument);
    if (fault.kind.starts_with("link-")) return TakeLink(context, request);
    MUSTER_ASSIGN_OR_RETURN(const v1::InjectFaultResponse response,
                            context.client.InjectFault(request));
    const Json generation = !job.empty() ? Json(response.generation()) : Json(nullptr);
    const Json json = {{"node", response.node()}, {"kind", kind}, {"generation", generation}};
    if (PrintStructured(context.terminal.out, context.output, json, "node")) return kExitSuccess;
    context.terminal.out << kind << " on " << response.node();
    if (!job.empty())
      context.terminal.out << ", rank " << rank << " of generation " << response.generation();
    context.terminal.out << "\n";
    return kExitSuccess;
  }

 private:
  Status CheckTarget(const std::string& known) const {
    const bool of_node = IsOneOf(known, kNodeFaultKinds);
    if (!of_node && !IsOneOf(known, kRankFaultKinds))
      return InvalidArgument("unknown --kind " + known + "\n  next: muster fault --help");
    if (of_node && (node.empty() || !job.empty()))
      return InvalidArgument("--kind " + known +
                             " applies to a node\n  next: muster fault --node " + "NODE --kind " +
                             known);
    if (!of_node && (job.empty() || !node.empty()))
      return InvalidArgument("--kind " + known + " applies to a rank\n  next: muster fault JOB " +
                             "--rank N --kind " + known);
    return OkStatus();
  }
};

template void AddVerb<Fault>(CommandLine& line);

}  // namespace muster::verbs
