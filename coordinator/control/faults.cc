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
constexpr std::array<std::string_view, 2> kNodeKinds = {"kill-node", "stop-worker"};

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

}  // namespace

void ControllerCore::On(const InjectFaultRequested& request) {
  if (Status status = InjectInto(request); !status.ok()) {
    out_.replies.push_back({request.request, std::move(status), {}});
  }
}

Status ControllerCore::InjectInto(const InjectFaultRequested& request) {
  if (!options_.allow_faults) {
    return FailedPrecondition(
        "faults are not allowed here; start the coordinator with --allow-faults");
  }
  InjectFault fault{++next_fault_, {}, 0, request.rank, request.kind, request.argument};
  NodeName target = request.node;
  JobEntry* job = nullptr;
  if (!request.job.empty()) {
    MUSTER_RETURN_IF_ERROR(CheckKind(kRankKinds, request));
    MUSTER_ASSIGN_OR_RETURN(const JobView view, FindJob(request.job));
    job = &jobs_.at(view.record->id);
    if (!job->gang || job->attempt().state != AttemptState::kRunning) {
      return FailedPrecondition("job " + job->record.id.value + " has no running ranks now");
    }
    if (request.rank < 0 || request.rank >= WorldSize(*job)) {
      return NotFound("job " + job->record.id.value + " has no rank " +
                      std::to_string(request.rank) + "; its ranks are 0 to " +
                      std::to_string(WorldSize(*job) - 1));
    }
    fault.job_id = job->record.id;
    fault.generation = job->attempt().generation;
    target = job->attempt().ranks[request.rank].node;
  } else {
    MUSTER_RETURN_IF_ERROR(CheckKind(kNodeKinds, request));
  }
  const NodeEntry* node = FindNode(target);
  if (node == nullptr) return NotFound("no node '" + target.value + "'; 'muster nodes' lists them");
  if (!node->record.allows_faults) {
    return FailedPrecondition("node " + target.value +
                              " does not allow faults; start its worker with --allow-faults");
  }
  if (node->session == 0) return Unavailable("node " + target.value + " is not connected");
  faults_[fault.request_id] = {request.request, target, fault.generation,
                               now_.mono + kFaultDeadline};
  const std::string what = request.kind + (request.argument.empty() ? "" : "=" + request.argument);
  if (job != nullptr) {
    Tell(*job,
         {"fault_injected", Severity::kWarning,
          what + " ordered for rank " + std::to_string(request.rank) + " on " + target.value});
  } else {
    TellCluster({"fault_injected", Severity::kWarning, what + " ordered for node " + target.value});
  }
  out_.observations.push_back(FaultObserved{});
  Send(target, std::move(fault));
  return OkStatus();
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
