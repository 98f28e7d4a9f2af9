#include "coordinator/control/fault_injection.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/fault_kinds.h"
#include "coordinator/control/answer.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/queries.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

constexpr Duration kFaultDeadline = std::chrono::seconds(10);
constexpr std::size_t kMaxArgumentBytes = 64;

template <std::size_t N>
Status CheckKind(const std::array<std::string_view, N>& kinds,
                 const InjectFaultRequested& request) {
  if (!IsOneOf(request.kind, kinds)) {
    std::string known;
    for (std::string_view kind : kinds) known += (known.empty() ? "" : ", ") + std::string(kind);
    return InvalidArgument("unknown fault '" + request.kind + "'; known faults: " + known);
  }
  if (request.argument.size() > kMaxArgumentBytes)
    return InvalidArgument("the fault's argument has " + std::to_string(request.argument.size()) +
                           " bytes, " + std::to_string(kMaxArgumentBytes) + " at most");
  return OkStatus();
}

std::string What(const InjectFaultRequested& request) {
  return request.kind + (request.argument.empty() ? "" : "=" + request.argument);
}

// `node` is nullptr if there is no node of that name.
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

void SendFault(Transaction& tx, const InjectFaultRequested& request, const NodeName& target,
               InjectFault fault) {
  fault.request_id = ++tx.state.next_fault;
  tx.state.faults[fault.request_id] = {request.request, target, fault.generation,
                                       tx.now.mono + kFaultDeadline};
  tx.out.observations.push_back(FaultObserved{});
  tx.Send(target, std::move(fault));
}

Status InjectIntoRank(Transaction& tx, const InjectFaultRequested& request) {
  MUSTER_RETURN_IF_ERROR(CheckKind(kRankFaultKinds, request));
  MUSTER_ASSIGN_OR_RETURN(const JobView view, FindJob(tx.state, request.job));
  JobEntry& job = tx.job(view.record->id);
  if (!job.gang || job.attempt().state != AttemptState::kRunning) {
    return FailedPrecondition("job " + job.record.id.value + " has no running ranks now");
  }
  if (request.rank < 0 || request.rank >= WorldSize(job)) {
    return NotFound("job " + job.record.id.value + " has no rank " + std::to_string(request.rank) +
                    "; its ranks are 0 to " + std::to_string(WorldSize(job) - 1));
  }
  const NodeName target = job.attempt().ranks[request.rank].node;
  MUSTER_RETURN_IF_ERROR(CheckTakesFaults(target, tx.FindNode(target), true));
  tx.RecordEvent(job, {"fault_injected", Severity::kWarning,
                       What(request) + " ordered for rank " + std::to_string(request.rank) +
                           " on " + target.value});
  SendFault(
      tx, request, target,
      {0, job.record.id, job.attempt().generation, request.rank, request.kind, request.argument});
  return OkStatus();
}

Status InjectIntoNode(Transaction& tx, const InjectFaultRequested& request) {
  MUSTER_RETURN_IF_ERROR(CheckKind(kNodeFaultKinds, request));
  const bool of_link = request.kind.starts_with("link-");
  MUSTER_RETURN_IF_ERROR(CheckTakesFaults(request.node, tx.FindNode(request.node), !of_link));
  const EventText told{"fault_injected", Severity::kWarning,
                       What(request) + " ordered for node " + request.node.value};
  tx.RecordClusterEvent(told);
  for (const JobId& id : tx.state.holds.Holders(request.node)) {
    const HoldLedger::Hold* hold = tx.state.holds.Find(request.node, id);
    const JobEntry* job = std::as_const(tx).FindJob(id);
    if (job != nullptr && !job->over() && hold->kind != HoldLedger::Kind::kOrphaned)
      tx.RecordEvent(*job, told);
  }
  if (!of_link) {
    SendFault(tx, request, request.node, {0, {}, 0, 0, request.kind, request.argument});
    return OkStatus();
  }
  // A node behind a cut link cannot receive the order to restore it. The caller cuts the link, and
  // may do so once this is stored.
  tx.out.observations.push_back(FaultObserved{});
  tx.out.replies.push_back({request.request, OkStatus(), FaultAccepted{request.node, 0}});
  return OkStatus();
}

void AnswerFault(Transaction& tx, std::map<std::uint64_t, OrderedFault>::iterator fault,
                 Status status) {
  const OrderedFault& order = fault->second;
  Reply reply{.request = order.request, .status = std::move(status)};
  if (reply.status.ok()) reply.body = FaultAccepted{order.node, order.generation};
  tx.out.replies.push_back(std::move(reply));
  tx.state.faults.erase(fault);
}

}  // namespace

void On(Transaction& tx, const InjectFaultRequested& request) {
  Status status =
      FailedPrecondition("faults are not allowed here; start the coordinator with --allow-faults");
  if (tx.options.allow_faults)
    status = request.job.empty() ? InjectIntoNode(tx, request) : InjectIntoRank(tx, request);
  Audit(tx, request.actor,
        {.operation = std::string(Name(request.kOperation)),
         .object = ObjectOf(request),
         .detail = What(request)},
        status);
  if (!status.ok()) tx.out.replies.push_back({request.request, std::move(status), {}});
}

void Handle(Transaction& tx, const NodeName& node, const FaultDone& message) {
  const auto fault = tx.state.faults.find(message.request_id);
  if (fault == tx.state.faults.end() || fault->second.node != node) return;
  AnswerFault(tx, fault, message.error.empty() ? OkStatus() : FailedPrecondition(message.error));
}

void AnswerFaultsOf(Transaction& tx, const NodeName& node) {
  for (auto fault = tx.state.faults.begin(); fault != tx.state.faults.end();) {
    const auto next = std::next(fault);
    if (fault->second.node == node) AnswerFault(tx, fault, OkStatus());
    fault = next;
  }
}

void ExpireFaults(Transaction& tx) {
  for (auto fault = tx.state.faults.begin(); fault != tx.state.faults.end();) {
    const auto next = std::next(fault);
    if (fault->second.deadline <= tx.now.mono) {
      AnswerFault(tx, fault,
                  Unavailable("node " + fault->second.node.value + " did not answer within " +
                              SecondsText(ToSeconds(kFaultDeadline))));
    }
    fault = next;
  }
}

}  // namespace muster::control
