#include "coordinator/service/enrol_service.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

// A call that waits for its certificate; the messages are gRPC's until it is finished. The code
// that takes it off the queue, with the mutex held, finishes it.
template <typename Wanted, typename Response>
struct Call {
  grpc::CallbackServerContext* context = nullptr;
  Wanted wanted;  // a copy, since the call may be finished while the thread hangs
  Response* response = nullptr;
  grpc::ServerUnaryReactor* reactor = nullptr;
};
using JoinCall = Call<JoinRequest, v1::JoinResponse>;
using RenewCall = Call<RenewRequest, v1::RenewResponse>;

// How the answer to a call is recorded.
void LogOutcome(const JoinCall& call, const Status& status) {
  const std::string peer = call.context->peer();
  if (status.ok()) {
    Log().info("node {} joined from {}, by token {}", call.wanted.node, peer, call.wanted.token_id);
  } else {
    Log().warn("a join from {} was refused: {}", peer, status.message());
  }
}
void LogOutcome(const RenewCall& call, const Status& status) {
  if (status.ok())
    Log().info("node {} has renewed its certificate", call.wanted.presented.identity.name);
}

}  // namespace

struct EnrolService::SigningQueue {
  // Calls of one kind: those that wait, and those that the thread decides.
  template <typename C>
  struct Batch {
    std::vector<C> waiting;
    std::vector<C> deciding;
  };

  explicit SigningQueue(std::optional<Enrolment> enrolment_in)
      : enrolment(std::move(enrolment_in)) {}

  Status Check(const Context& context, std::size_t bytes) const {
    if (!IsTls(*context.auth_context()))
      return PermissionDenied("certificates are given out over TLS only");
    if (bytes > kMaxRequestBytes) return InvalidArgument("the request is larger than 16 KiB");
    if (!enrolment)
      return FailedPrecondition(
          "this coordinator has no authority, so it cannot sign; run 'muster init' where it runs");
    return OkStatus();
  }

  template <typename C>
  Batch<C>& BatchOf() {
    return std::get<Batch<C>>(batches);
  }
  std::size_t waiting() {
    return BatchOf<JoinCall>().waiting.size() + BatchOf<RenewCall>().waiting.size();
  }

  // The thread: serves all calls that are there.
  void Serve() {
    const auto sign = [this](const auto& requests) {
      const std::int64_t now_ms = SystemClock().UnixMillis();
      if constexpr (std::is_same_v<decltype(requests), const std::vector<JoinRequest>&>) {
        return enrolment->Join(requests, now_ms);
      } else {
        return enrolment->Renew(requests, now_ms);
      }
    };
    {
      const std::lock_guard lock(mutex);
      scheduled = false;
    }
    ServeBatch<JoinCall>(sign);
    ServeBatch<RenewCall>(sign);
  }

  template <typename C, typename Sign>
  void ServeBatch(Sign sign) {
    std::vector<decltype(C::wanted)> requests;
    {
      const std::lock_guard lock(mutex);
      Batch<C>& pile = BatchOf<C>();
      pile.deciding = std::exchange(pile.waiting, {});
      for (const C& call : pile.deciding) requests.push_back(call.wanted);
    }
    if (requests.empty()) return;
    const auto certificates = sign(requests);
    Failpoint("enrol.signed");
    std::vector<C> calls;
    {
      const std::lock_guard lock(mutex);
      calls = std::exchange(BatchOf<C>().deciding, {});
    }
    // None if they were answered in the meantime because the coordinator ends.
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (certificates[i].ok()) calls[i].response->set_certificate_pem(*certificates[i]);
      LogOutcome(calls[i], certificates[i].status());
      calls[i].reactor->Finish(ToGrpcStatus(certificates[i].status()));
    }
  }

  template <typename C>
  void FinishAll(const Status& reason) {
    std::vector<C> calls;
    {
      const std::lock_guard lock(mutex);
      Batch<C>& pile = BatchOf<C>();
      calls = std::exchange(pile.waiting, {});
      std::ranges::move(std::exchange(pile.deciding, {}), std::back_inserter(calls));
    }
    for (const C& call : calls) call.reactor->Finish(ToGrpcStatus(reason));
  }

  const std::optional<Enrolment> enrolment;
  std::mutex mutex;
  std::tuple<Batch<JoinCall>, Batch<RenewCall>> batches;
  bool scheduled = false;  // Serve will process the waiting calls
  Status closed;
};

EnrolService::EnrolService(std::optional<Enrolment> enrolment)
    : signing_queue_(std::make_unique<SigningQueue>(std::move(enrolment))) {}

EnrolService::~EnrolService() = default;

template <typename C>
EnrolService::Reactor* EnrolService::Enqueue(C call, std::size_t bytes) {
  Reactor* reactor = call.context->DefaultReactor();
  call.reactor = reactor;
  Status status = signing_queue_->Check(*call.context, bytes);
  if (status.ok()) {
    const std::lock_guard lock(signing_queue_->mutex);
    if (!signing_queue_->closed.ok()) {
      status = signing_queue_->closed;
    } else if (signing_queue_->waiting() >= kMaxQueued) {
      status = ResourceExhausted("too many nodes enrol at once; try again in a second");
    } else {
      signing_queue_->BatchOf<C>().waiting.push_back(std::move(call));
      if (!signing_queue_->scheduled)
        signing_queue_->scheduled =
            pool_.TrySubmit([signing_queue = signing_queue_.get()] { signing_queue->Serve(); });
    }
  }
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

EnrolService::Reactor* EnrolService::Join(Context* context, const v1::JoinRequest* request,
                                          v1::JoinResponse* response) {
  const std::size_t bytes = request->ByteSizeLong();
  JoinRequest wanted;
  if (bytes <= kMaxRequestBytes)
    wanted = {request->token_id(), request->secret(), request->node(), request->request_pem()};
  return Enqueue<JoinCall>({context, std::move(wanted), response}, bytes);
}

EnrolService::Reactor* EnrolService::Renew(Context* context, const v1::RenewRequest* request,
                                           v1::RenewResponse* response) {
  const std::size_t bytes = request->ByteSizeLong();
  std::optional<CertificateInfo> peer = PeerCertificate(*context->auth_context());
  if (!peer && IsTls(*context->auth_context())) {
    Reactor* reactor = context->DefaultReactor();
    reactor->Finish(
        ToGrpcStatus(Unauthenticated("only a node that has a certificate gets the next one")));
    return reactor;
  }
  RenewRequest wanted;
  if (peer && bytes <= kMaxRequestBytes) wanted = {*std::move(peer), request->request_pem()};
  return Enqueue<RenewCall>({context, std::move(wanted), response}, bytes);
}

namespace {

grpc::ServerUnaryReactor* RefuseHere(grpc::CallbackServerContext* context) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToGrpcStatus(
      PermissionDenied("people log in where nodes join: at the coordinator's --join-listen")));
  return reactor;
}

}  // namespace

EnrolService::Reactor* EnrolService::Issuers(Context* context, const v1::IssuersRequest*,
                                             v1::IssuersResponse*) {
  return RefuseHere(context);
}

EnrolService::Reactor* EnrolService::Login(Context* context, const v1::LoginRequest*,
                                           v1::LoginResponse*) {
  return RefuseHere(context);
}

void EnrolService::Close(const Status& reason) {
  {
    const std::lock_guard lock(signing_queue_->mutex);
    if (signing_queue_->closed.ok()) signing_queue_->closed = reason;
  }
  signing_queue_->FinishAll<JoinCall>(reason);
  signing_queue_->FinishAll<RenewCall>(reason);
}

}  // namespace muster
