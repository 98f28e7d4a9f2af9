// EnrolService: gives nodes their certificates, by common/security/enrolment.h.
//
// Owned by the server. gRPC's threads call the RPC functions; decisions and signatures, which block
// on the disk, run on the service's own thread. Calls that arrive while it waits for the disk share
// its next wait; at most kMaxQueued wait, and as many are being decided. The Authenticator has
// decided which callers are allowed.
//
// The disk may be remote and not answer any more. So Close finishes every call, including one that
// blocks the thread, and gRPC can be shut down then; the destructor waits for the thread.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <memory>
#include <optional>

#include "common/runtime/worker_pool.h"
#include "common/security/enrolment.h"
#include "muster/v1/enrol_api.grpc.pb.h"

namespace muster {

class EnrolService final : public v1::Enrol::CallbackService {
 public:
  static constexpr std::size_t kMaxRequestBytes = 16 << 10;
  static constexpr std::size_t kMaxQueued = 1024;

  // Without an enrolment (a coordinator that has credentials but no authority) every call is
  // refused.
  explicit EnrolService(std::optional<Enrolment> enrolment);
  ~EnrolService() override;

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Join(Context*, const v1::JoinRequest*, v1::JoinResponse*) override;
  Reactor* Renew(Context*, const v1::RenewRequest*, v1::RenewResponse*) override;
  // Are LoginService's, where nodes join; refused at every other listener.
  Reactor* Issuers(Context*, const v1::IssuersRequest*, v1::IssuersResponse*) override;
  Reactor* Login(Context*, const v1::LoginRequest*, v1::LoginResponse*) override;

  // Ends what waits and what is being decided, and refuses new calls. Any thread.
  void Close(const Status& reason);

 private:
  struct SigningQueue;
  template <typename C>
  Reactor* Enqueue(C call, std::size_t bytes);

  const std::unique_ptr<SigningQueue> signing_queue_;
  WorkerPool pool_{"enrol", 1, 2};
};

}  // namespace muster
