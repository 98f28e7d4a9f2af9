// ClientCalls: how calls of clients begin and end, whichever service they are of: who makes them,
// how many there may be, what the controller answers.
//
// Owned by the server. Begin and OnLoop: gRPC's threads; the rest: the loop's. Waiting calls are
// bounded by kMaxCalls and end with their caller; more are refused with RESOURCE_EXHAUSTED and
// counted.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "common/runtime/event_loop.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/call_guard.h"
#include "coordinator/service/controller_runtime.h"
#include "coordinator/service/unary_call.h"

namespace muster {

class ClientCalls {
 public:
  static constexpr int kMaxCalls = 4096;

  struct Parts {
    EventLoop& loop;
    ControllerRuntime& runtime;
    const Authenticator& authenticator;
    RefusalLog& refusals;
  };
  explicit ClientCalls(Parts parts)
      : parts_(parts), guard_(parts.runtime.controller(), parts.refusals) {}

  using Call = std::shared_ptr<UnaryCall>;
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  // Identifies the caller and starts the call, on gRPC's thread. What follows must ask the guard.
  Reactor* Begin(Context* context, ClientOperation operation,
                 const std::function<void(const Call&)>& start);
  // The same on the loop, where the request may be read until `function` returns; the guard has
  // admitted the call, which must be ended.
  Reactor* OnLoop(Context* context, ClientOperation operation,
                  std::function<void(const Call&)> function);
  // Hands the event to the controller runtime. `fill` puts the reply into the response; not called
  // if the caller has gone.
  template <typename Event>
  void Ask(Event event, const Call& call, std::function<void(const Reply&)> fill) {
    const RequestId request =
        parts_.runtime.Ask(std::move(event), [call, fill = std::move(fill)](const Reply& reply) {
          fill(reply);
          Answer(call, reply.status);
        });
    call->OnGone([this, request] { parts_.runtime.Forget(request); });
  }
  void EndOnceDurable(const Call& call);

  CallGuard& guard() { return guard_; }
  void CountRefused() { ++refused_; }
  std::uint64_t refused() const { return refused_; }

 private:
  static void Answer(const Call& call, const Status& status);

  Parts parts_;
  CallGuard guard_;
  std::atomic<int> calls_ = 0;
  std::atomic<std::uint64_t> refused_ = 0;
};

}  // namespace muster
