// EnrolService: gives nodes their certificates, by common/security/enrolment.h.
//
// Owned by the server. gRPC's threads call the RPC functions; the deciding and signing, which block
// on the disk, run on a thread of the service's own behind a bounded queue. The Doorkeeper has
// decided who may call at all. The destructor ends what is queued, so gRPC must have been shut
// down.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
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

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Join(Context*, const v1::JoinRequest*, v1::JoinResponse*) override;
  Reactor* Renew(Context*, const v1::RenewRequest*, v1::RenewResponse*) override;

 private:
  // Runs `work` on the pool and finishes the call with what it returns.
  Reactor* OnPool(Context* context, std::size_t bytes, std::function<Status()> work);

  const std::optional<Enrolment> enrolment_;
  WorkerPool pool_{"enrol", 1, kMaxQueued};
};

}  // namespace muster
