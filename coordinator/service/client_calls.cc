#include "coordinator/service/client_calls.h"

#include "common/base/failpoint.h"
#include "common/rpc/grpc_status.h"

namespace muster {
namespace {

struct AnswerPoint {
  ClientOperation operation;
  FailpointName point;
};

// Calls that change something, each with the failpoint before its answer.
constexpr AnswerPoint kAnswers[] = {{ClientOperation::kSubmit, "answer.submit"},
                                    {ClientOperation::kCancel, "answer.cancel"},
                                    {ClientOperation::kSuspend, "answer.suspend"},
                                    {ClientOperation::kResume, "answer.resume"},
                                    {ClientOperation::kUpdateJob, "answer.update"},
                                    {ClientOperation::kHoldJob, "answer.hold"},
                                    {ClientOperation::kReleaseJob, "answer.release"},
                                    {ClientOperation::kDrain, "answer.drain"},
                                    {ClientOperation::kUndrain, "answer.undrain"},
                                    {ClientOperation::kApplyQueues, "answer.queues"},
                                    {ClientOperation::kApplyUsers, "answer.users"},
                                    {ClientOperation::kSetSecret, "answer.secret_set"},
                                    {ClientOperation::kRemoveSecret, "answer.secret_remove"}};

}  // namespace

ClientCalls::Reactor* ClientCalls::Begin(Context* context, ClientOperation operation,
                                         const std::function<void(const Call&)>& start) {
  const auto refuse = [context](const grpc::Status& status) {
    Reactor* reactor = context->DefaultReactor();
    reactor->Finish(status);
    return reactor;
  };
  Result<Actor> actor = parts_.authenticator.Identify(*context);
  if (!actor.ok()) return refuse(ToGrpcStatus(actor.status()));
  if (calls_.fetch_add(1) >= kMaxCalls) {
    --calls_;
    ++refused_;
    return refuse({grpc::StatusCode::RESOURCE_EXHAUSTED, "the coordinator is busy; try again"});
  }
  const Call call = UnaryCall::Begin(parts_.loop, calls_, *std::move(actor), operation);
  start(call);
  return call.get();
}

ClientCalls::Reactor* ClientCalls::OnLoop(Context* context, ClientOperation operation,
                                          std::function<void(const Call&)> function) {
  return Begin(context, operation, [this, &function](const Call& call) {
    parts_.loop.Post([this, call, function = std::move(function)] {
      if (guard_.Admits(call)) function(call);
    });
  });
}

void ClientCalls::Answer(const Call& call, const Status& status) {
  for (const auto& [operation, point] : kAnswers)
    if (operation == call->operation()) Failpoint(point);
  call->End(status);
}

void ClientCalls::EndOnceDurable(const Call& call) {
  parts_.runtime.AfterDurable([call](const Status& durable) { call->End(durable); });
}

}  // namespace muster
