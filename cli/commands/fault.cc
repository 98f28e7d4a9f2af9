// fault: causes a failure on purpose, so that a recovery can be rehearsed.

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/commands/commands.h"
#include "cli/exit_code.h"

namespace muster {
namespace {

constexpr std::string_view kRankKinds[] = {
    "kill", "stop", "cont", "slow", "hang-data", "hang-collective", "nan", "oom", "exit"};
constexpr std::string_view kNodeKinds[] = {"kill-node", "stop-worker", "link-down", "link-up"};

bool IsOneOf(std::string_view kind, const auto& kinds) {
  return std::find(std::begin(kinds), std::end(kinds), kind) != std::end(kinds);
}

std::optional<double> Number(std::string_view text) {
  double value = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = end.ec == std::errc() && end.ptr == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

// "30%" and "0.3" are the fraction 0.3.
Result<std::string> Fraction(const std::string& text) {
  const bool percent = text.ends_with('%');
  const auto number = Number(std::string_view(text).substr(0, text.size() - percent));
  if (!number || *number <= 0 || *number > (percent ? 10000 : 100))
    return InvalidArgument("slow=" + text + ": write by how much a step is to take longer, as 30%");
  return Fixed(percent ? *number / 100 : *number, 4);
}

Result<std::string> ExitCode(const std::string& text) {
  const auto number = Number(text);
  if (!number || *number != std::floor(*number) || *number < 0 || *number > 255)
    return InvalidArgument("exit=" + text + ": write a code from 0 to 255");
  return text;
}

Status CheckTarget(const FaultOptions& options, const std::string& kind) {
  const bool of_node = IsOneOf(kind, kNodeKinds);
  if (!of_node && !IsOneOf(kind, kRankKinds))
    return InvalidArgument("--kind " + kind +
                           ": of a rank kill, stop, cont, hang-data, hang-collective, nan, oom, "
                           "slow=30% and exit=3 are possible, of a node kill-node, stop-worker, "
                           "link-down and link-up");
  if (of_node && (options.node.empty() || !options.job.empty()))
    return InvalidArgument("--kind " + kind + " is of a node: muster fault --node NODE --kind " +
                           kind);
  if (!of_node && (options.job.empty() || !options.node.empty()))
    return InvalidArgument("--kind " + kind + " is of a rank: muster fault JOB --rank N --kind " +
                           kind);
  return OkStatus();
}

// The link is this machine's to cut: the coordinator could not reach the node to put it back. But
// the coordinator is asked before, so that the timelines of all that it strikes tell of it.
CommandResult TakeLink(CommandContext& context, const v1::InjectFaultRequest& request) {
  const bool up = request.kind() == "link-up";
  LocalCluster cluster(context.client, "");
  MUSTER_RETURN_IF_ERROR(cluster.CheckLink(request.node()));
  const auto recorded = context.client.InjectFault(request);
  // A coordinator that is away must not keep a node cut off: it might need that node to come back.
  const bool away = recorded.status().code() == StatusCode::kUnavailable ||
                    recorded.status().code() == StatusCode::kDeadlineExceeded;
  if (!recorded.ok() && !(up && away)) return recorded.status();
  if (!recorded.ok())
    context.terminal.err << "muster: not recorded: " << recorded.status().message() << "\n";
  MUSTER_RETURN_IF_ERROR(cluster.SetLink(request.node(), up));
  const Json json = {{"node", request.node()}, {"kind", request.kind()}, {"generation", nullptr}};
  if (PrintStructured(context.terminal.out, context.output, json, "node")) return kExitSuccess;
  context.terminal.out << "the link of " << request.node() << " is " << (up ? "up" : "down")
                       << "\n";
  return kExitSuccess;
}

}  // namespace

Result<FaultKind> ParseFaultKind(const std::string& text) {
  const std::size_t equals = text.find('=');
  FaultKind fault{text.substr(0, equals), ""};
  const bool takes_argument = fault.kind == "slow" || fault.kind == "exit";
  if (takes_argument != (equals != std::string::npos))
    return InvalidArgument(
        "--kind " + text +
        (takes_argument ? ": write slow=30% or exit=3" : ": it takes no argument"));
  if (!takes_argument) return fault;
  const std::string argument = text.substr(equals + 1);
  MUSTER_ASSIGN_OR_RETURN(fault.argument,
                          fault.kind == "slow" ? Fraction(argument) : ExitCode(argument));
  return fault;
}

CommandResult RunFault(CommandContext& context, const FaultOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const FaultKind fault, ParseFaultKind(options.kind));
  MUSTER_RETURN_IF_ERROR(CheckTarget(options, fault.kind));
  v1::InjectFaultRequest request;
  request.set_job(options.job);
  request.set_rank(options.rank);
  request.set_node(options.node);
  request.set_kind(fault.kind);
  request.set_argument(fault.argument);
  if (fault.kind.starts_with("link-")) return TakeLink(context, request);
  MUSTER_ASSIGN_OR_RETURN(const v1::InjectFaultResponse response,
                          context.client.InjectFault(request));
  const bool of_rank = !options.job.empty();
  const Json generation = of_rank ? Json(response.generation()) : Json(nullptr);
  const Json json = {{"node", response.node()}, {"kind", options.kind}, {"generation", generation}};
  if (PrintStructured(context.terminal.out, context.output, json, "node")) return kExitSuccess;
  context.terminal.out << options.kind << " on " << response.node();
  if (of_rank)
    context.terminal.out << ", rank " << options.rank << " of generation " << response.generation();
  context.terminal.out << "\n";
  return kExitSuccess;
}

}  // namespace muster
