// UnaryCall: a client's call that the loop answers, until it is answered or its caller has gone.
//
// gRPC owns the call's request and response, which exist until the call has ended. The function
// that the call's start posts to the loop may read the request, because a cancel is posted after
// it. Later the loop may only write the response, and only while the call is open: code that waits
// for an answer holds the call, checks open() before it touches the response, and sets with OnGone
// what to abandon when the caller disconnects.
//
// Loop thread, except Begin and what gRPC calls.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "common/base/status.h"
#include "common/runtime/event_loop.h"
#include "coordinator/access/actor.h"
#include "coordinator/access/operations.h"

namespace muster {

class UnaryCall final : public grpc::ServerUnaryReactor,
                        public std::enable_shared_from_this<UnaryCall> {
 public:
  // `calls` counts this one until it has ended; both outlive it.
  static std::shared_ptr<UnaryCall> Begin(EventLoop& loop, std::atomic<int>& calls, Actor actor,
                                          ClientOperation operation);

  const Actor& actor() const { return actor_; }
  ClientOperation operation() const { return operation_; }

  bool open() const { return !ended_; }
  // The first result counts.
  void End(const Status& status);
  // Calls `gone` once the caller has gone, unless the call has ended before.
  void OnGone(std::function<void()> gone);

 private:
  UnaryCall(EventLoop& loop, std::atomic<int>& calls, Actor actor, ClientOperation operation)
      : loop_(loop), calls_(calls), actor_(std::move(actor)), operation_(operation) {}
  void OnCancel() override;
  void OnDone() override;
  void EndGone();

  EventLoop& loop_;
  std::atomic<int>& calls_;
  const Actor actor_;
  const ClientOperation operation_;
  bool ended_ = false;
  std::function<void()> gone_;
  std::shared_ptr<UnaryCall> self_;  // until OnDone
};

}  // namespace muster
