// EnrolService: gives nodes their certificates, by common/security/enrolment.h.
//
// Owned by the server. gRPC's threads call the RPC functions; the deciding and signing, which block
// on the disk, run on a thread of the service's own behind a bounded queue. Calls that come while
// it waits for the disk share its next wait. The Doorkeeper has decided who may call at all. The
// destructor ends what is queued, so gRPC must have been shut down.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <mutex>
#include <optional>
#include <vector>

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
  // A call that waits for its certificate; the messages are gRPC's until it is finished.
  template <typename Request, typename Response>
  struct Call {
    Context* context = nullptr;
    const Request* request = nullptr;
    Response* response = nullptr;
    Reactor* reactor = nullptr;
  };
  using JoinCall = Call<v1::JoinRequest, v1::JoinResponse>;
  using RenewCall = Call<v1::RenewRequest, v1::RenewResponse>;

  Status Check(Context* context, std::size_t bytes) const;
  template <typename C>
  Reactor* Enqueue(C call, std::vector<C>& queue);
  // The pool's thread: all calls that are there.
  void Serve();
  void ServeJoins(const std::vector<JoinCall>& calls);
  void ServeRenewals(const std::vector<RenewCall>& calls);

  const std::optional<Enrolment> enrolment_;
  std::mutex mutex_;
  std::vector<JoinCall> joins_;
  std::vector<RenewCall> renewals_;
  bool scheduled_ = false;  // Serve will look at the queues
  WorkerPool pool_{"enrol", 1, 2};
};

}  // namespace muster
