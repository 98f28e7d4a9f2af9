// Faults that users order, to rehearse them on their own cluster.

#include <algorithm>
#include <array>
#include <string_view>

#include "coordinator/control/core.h"

namespace muster {
namespace {

constexpr Duration kFaultDeadline = std::chrono::seconds(10);
constexpr std::size_t kMaxArgumentBytes = 64;
constexpr std::array<std::string_view, 9> kRankKinds = {
    "kill", "stop", "cont", "hang-data", "hang-collective", "nan", "oom", "slow", "exit"};
constexpr std::array<std::string_view, 4> kNodeKinds = {"kill-node", "stop-worker", "link-down",
                                                        "link-up"};

template <std::size_t N>
Status CheckKind(const std::array<std::string_view, N>& kinds,
                 const InjectFaultRequested& request) {
  if (std::find(kinds.begin(), kinds.end(), request.kind) == kinds.end()) {
    std::string known;
    for (std::string_view kind : kinds) known += (known.empty() ? "" : ", ") + std::string(kind);
    return InvalidArgument("no fault '" + request.kind + "'; there are " + known);
  }
  if (request.argument.size() > kMaxArgumentBytes)
    return InvalidArgument("the argument is too long");
  return OkStatus();
}

std::string What(const InjectFaultRequested& request) {
  return request.kind + (request.argument.empty() ? "" : "=" + request.argument);
}

// `node` is nullptr where there is none of that name.
Status CheckTakesFaults(const NodeName& name, const NodeEntry* node, bool connected) {
  if (node == nullptr) return NotFound("no node '" + name.value + "'; 'muster nodes' lists them");
  if (!node->record.allows_faults) {
    return FailedPrecondition("node " + name.value +
                              " does not allow faults; start its worker with --allow-faults");
  }
  if (connected && node->session == 0)
    return Unavailable("node " + name.value + " is not connected");
  return OkStatus();
}

}  // namespace

void ControllerCore::On(const InjectFaultRequested& request) {
  Status status =
      FailedPrecondition("faults are not allowed here; start the coordinator with --allow-faults");
  if (options_.allow_faults)
    status = request.job.empty() ? InjectIntoNode(request) : InjectIntoRank(request);
  if (!status.ok()) out_.replies.push_back({request.request, std::move(status), {}});
}

Status ControllerCore::InjectIntoRank(const InjectFaultRequested& request) {
  MUSTER_RETURN_IF_ERROR(CheckKind(kRankKinds, request));
  MUSTER_ASSIGN_OR_RETURN(const JobView view, FindJob(request.job));
  JobEntry& job = jobs_.at(view.record->id);
  if (!job.gang || job.attempt().state != AttemptState::kRunning) {
    return FailedPrecondition("job " + job.record.id.value + " has no running ranks now");
  }
  if (request.rank < 0 || request.rank >= WorldSize(job)) {
    return NotFound("job " + job.record.id.value + " has no rank " + std::to_string(request.rank) +
                    "; its ranks are 0 to " + std::to_string(WorldSize(job) - 1));
  }
  const NodeName target = job.attempt().ranks[request.rank].node;
  MUSTER_RETURN_IF_ERROR(CheckTakesFaults(target, FindNode(target), true));
  RecordEvent(job, {"fault_injected", Severity::kWarning,
                    What(request) + " ordered for rank " + std::to_string(request.rank) + " on " +
                        target.value});
  SendFault(
      request, target,
      {0, job.record.id, job.attempt().generation, request.rank, request.kind, request.argument});
  return OkStatus();
}

Status ControllerCore::InjectIntoNode(const InjectFaultRequested& request) {
  MUSTER_RETURN_IF_ERROR(CheckKind(kNodeKinds, request));
  const bool of_link = request.kind.starts_with("link-");
  MUSTER_RETURN_IF_ERROR(CheckTakesFaults(request.node, FindNode(request.node), !of_link));
  const EventText told{"fault_injected", Severity::kWarning,
                       What(request) + " ordered for node " + request.node.value};
  RecordClusterEvent(told);
  for (const JobId& id : live_) {
    const SlotLedger::Hold* hold = slots_.Find(request.node, id);
    if (hold != nullptr && hold->kind != SlotLedger::Kind::kOrphaned)
      RecordEvent(jobs_.at(id), told);
  }
  if (!of_link) {
    SendFault(request, request.node, {0, {}, 0, 0, request.kind, request.argument});
    return OkStatus();
  }
  // A node behind a cut link could not be told to put it back: whoever asked takes the link, and
  // may do so once this is stored.
  out_.observations.push_back(FaultObserved{});
  out_.replies.push_back({request.request, OkStatus(), FaultAccepted{request.node, 0}});
  return OkStatus();
}

void ControllerCore::SendFault(const InjectFaultRequested& request, const NodeName& target,
                               InjectFault fault) {
  fault.request_id = ++next_fault_;
  faults_[fault.request_id] = {request.request, target, fault.generation,
                               now_.mono + kFaultDeadline};
  out_.observations.push_back(FaultObserved{});
  Send(target, std::move(fault));
}

void ControllerCore::Handle(const NodeName& node, const FaultDone& message) {
  const auto fault = faults_.find(message.request_id);
  if (fault == faults_.end() || fault->second.node != node) return;
  AnswerFault(fault, message.error.empty() ? OkStatus() : FailedPrecondition(message.error));
}

void ControllerCore::AnswerFault(std::map<std::uint64_t, OrderedFault>::iterator fault,
                                 Status status) {
  const OrderedFault& order = fault->second;
  Reply reply{order.request, std::move(status), {}};
  if (reply.status.ok()) reply.body = FaultAccepted{order.node, order.generation};
  out_.replies.push_back(std::move(reply));
  faults_.erase(fault);
}

// A node that is told to die may do so before it answers.
void ControllerCore::AnswerFaultsOf(const NodeName& node) {
  for (auto fault = faults_.begin(); fault != faults_.end();) {
    const auto next = std::next(fault);
    if (fault->second.node == node) AnswerFault(fault, OkStatus());
    fault = next;
  }
}

void ControllerCore::ExpireFaults() {
  for (auto fault = faults_.begin(); fault != faults_.end();) {
    const auto next = std::next(fault);
    if (fault->second.deadline <= now_.mono) {
      AnswerFault(fault,
                  Unavailable("node " + fault->second.node.value + " did not answer within " +
                              SecondsText(ToSeconds(kFaultDeadline))));
    }
    fault = next;
  }
}

}  // namespace muster
