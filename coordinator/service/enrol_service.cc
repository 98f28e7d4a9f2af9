#include "coordinator/service/enrol_service.h"

#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/peer_certificate.h"
#include "common/telemetry/log.h"

namespace muster {

EnrolService::EnrolService(std::optional<Enrolment> enrolment) : enrolment_(std::move(enrolment)) {}

Status EnrolService::Check(Context* context, std::size_t bytes) const {
  if (!IsTls(*context->auth_context()))
    return PermissionDenied("certificates are given out over TLS only");
  if (bytes > kMaxRequestBytes) return InvalidArgument("the request is larger than 16 KiB");
  if (!enrolment_)
    return FailedPrecondition(
        "this coordinator has no authority, so it cannot sign; run 'muster init' where it runs");
  return OkStatus();
}

template <typename C>
EnrolService::Reactor* EnrolService::Enqueue(C call, std::vector<C>& queue) {
  Reactor* reactor = call.context->DefaultReactor();
  call.reactor = reactor;
  Status status = Check(call.context, call.request->ByteSizeLong());
  if (status.ok()) {
    const std::lock_guard lock(mutex_);
    if (joins_.size() + renewals_.size() >= kMaxQueued) {
      status = ResourceExhausted("too many nodes enrol at once; try again in a second");
    } else {
      queue.push_back(call);
      if (!scheduled_) scheduled_ = pool_.TrySubmit([this] { Serve(); });
    }
  }
  if (!status.ok()) reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

EnrolService::Reactor* EnrolService::Join(Context* context, const v1::JoinRequest* request,
                                          v1::JoinResponse* response) {
  return Enqueue<JoinCall>({context, request, response}, joins_);
}

EnrolService::Reactor* EnrolService::Renew(Context* context, const v1::RenewRequest* request,
                                           v1::RenewResponse* response) {
  return Enqueue<RenewCall>({context, request, response}, renewals_);
}

void EnrolService::Serve() {
  std::vector<JoinCall> joins;
  std::vector<RenewCall> renewals;
  {
    const std::lock_guard lock(mutex_);
    joins.swap(joins_);
    renewals.swap(renewals_);
    scheduled_ = false;
  }
  if (!joins.empty()) ServeJoins(joins);
  if (!renewals.empty()) ServeRenewals(renewals);
}

void EnrolService::ServeJoins(const std::vector<JoinCall>& calls) {
  std::vector<JoinRequest> requests;
  for (const JoinCall& call : calls)
    requests.push_back({call.request->token_id(), call.request->secret(), call.request->node(),
                        call.request->request_pem()});
  const auto certificates = enrolment_->Join(requests, SystemClock().UnixMillis());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const JoinCall& call = calls[i];
    if (certificates[i].ok()) {
      Log().info("node {} joined from {}, by token {}", requests[i].node, call.context->peer(),
                 requests[i].token_id);
      call.response->set_certificate_pem(*certificates[i]);
    } else {
      Log().warn("a join from {} was refused: {}", call.context->peer(),
                 certificates[i].status().message());
    }
    call.reactor->Finish(ToGrpcStatus(certificates[i].status()));
  }
}

void EnrolService::ServeRenewals(const std::vector<RenewCall>& calls) {
  std::vector<RenewRequest> requests;
  std::vector<RenewCall> known;
  for (const RenewCall& call : calls) {
    std::optional<CertificateInfo> peer = PeerCertificate(*call.context->auth_context());
    if (!peer) {
      call.reactor->Finish(
          ToGrpcStatus(Unauthenticated("only a node that has a certificate gets the next one")));
      continue;
    }
    requests.push_back({*std::move(peer), call.request->request_pem()});
    known.push_back(call);
  }
  const auto certificates = enrolment_->Renew(requests, SystemClock().UnixMillis());
  for (std::size_t i = 0; i < known.size(); ++i) {
    if (certificates[i].ok()) {
      Log().info("node {} has renewed its certificate", requests[i].presented.identity.name);
      known[i].response->set_certificate_pem(*certificates[i]);
    }
    known[i].reactor->Finish(ToGrpcStatus(certificates[i].status()));
  }
}

}  // namespace muster
