#include "coordinator/service/worker_stream.h"

#include <utility>

#include "common/rpc/grpc_status.h"

namespace muster {

// gRPC never calls a reactor back from within the functions that start an operation, so they may be
// called with the mutex held; only that ensures that none is started after Finish.

void WorkerStream::Begin() {
  self_ = shared_from_this();
  StartRead(&incoming_);
}

void WorkerStream::Send(v1::CoordinatorMessage message) {
  std::lock_guard lock(mutex_);
  if (closing_) return;
  if (outgoing_.size() >= kMaxQueued) {
    closing_ = true;
    final_status_ = ResourceExhausted("the worker does not read its messages; connect again");
    // The front one may be under way.
    outgoing_.resize(writing_ ? 1 : 0);
  } else {
    outgoing_.push_back(std::move(message));
  }
  PumpLocked();
}

void WorkerStream::ReadNext() {
  std::lock_guard lock(mutex_);
  if (!closing_) StartRead(&incoming_);
}

void WorkerStream::Close(Status status) {
  std::lock_guard lock(mutex_);
  if (closing_) return;
  closing_ = true;
  final_status_ = std::move(status);
  PumpLocked();
}

void WorkerStream::Drop(Status status) {
  std::lock_guard lock(mutex_);
  outgoing_.resize(writing_ ? 1 : 0);
  if (!closing_) final_status_ = std::move(status);
  closing_ = true;
  PumpLocked();
}

void WorkerStream::PumpLocked() {
  if (writing_ || finished_) return;
  if (!outgoing_.empty()) {
    writing_ = true;
    StartWrite(&outgoing_.front());
  } else if (closing_) {
    finished_ = true;
    Finish(ToGrpcStatus(final_status_));
  }
}

void WorkerStream::OnReadDone(bool ok) {
  if (!ok) return Drop(OkStatus());
  handler_.OnMessage(self_, std::move(incoming_));
}

void WorkerStream::OnWriteDone(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  outgoing_.pop_front();
  if (!ok) {
    outgoing_.clear();
    closing_ = true;
  }
  PumpLocked();
}

void WorkerStream::OnCancel() { Drop(Cancelled("the worker has gone")); }

void WorkerStream::OnDone() {
  // The last owner may be this function.
  const std::shared_ptr<WorkerStream> self = std::move(self_);
  handler_.OnEnd(self);
}

}  // namespace muster
