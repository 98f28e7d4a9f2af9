#include "coordinator/service/unary_call.h"

#include <utility>

#include "common/rpc/grpc_status.h"

namespace muster {

std::shared_ptr<UnaryCall> UnaryCall::Begin(EventLoop& loop, std::atomic<int>& calls, Actor actor,
                                            ClientOperation operation) {
  std::shared_ptr<UnaryCall> call(new UnaryCall(loop, calls, std::move(actor), operation));
  call->self_ = call;
  return call;
}

void UnaryCall::End(const Status& status) {
  if (std::exchange(ended_, true)) return;
  gone_ = nullptr;
  --calls_;
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnGone(std::function<void()> gone) {
  if (open()) gone_ = std::move(gone);
}

// gRPC calls this before OnDone, also for a call that has ended.
void UnaryCall::OnCancel() {
  loop_.Post([self = self_] { self->EndGone(); });
}

void UnaryCall::EndGone() {
  const auto gone = std::exchange(gone_, nullptr);
  if (open() && gone) gone();
  End(Cancelled("the caller has gone"));
}

void UnaryCall::OnDone() {
  // This may be the last owner.
  const std::shared_ptr<UnaryCall> self = std::move(self_);
}

}  // namespace muster
