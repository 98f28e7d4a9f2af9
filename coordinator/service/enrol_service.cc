#include "coordinator/service/enrol_service.h"

#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/rpc/grpc_status.h"
#include "common/telemetry/log.h"
#include "coordinator/service/doorkeeper.h"

namespace muster {

EnrolService::EnrolService(std::optional<Enrolment> enrolment) : enrolment_(std::move(enrolment)) {}

EnrolService::Reactor* EnrolService::OnPool(Context* context, std::size_t bytes,
                                            std::function<Status()> work) {
  Reactor* reactor = context->DefaultReactor();
  Status refused;
  if (!Doorkeeper::IsTls(*context->auth_context())) {
    refused = PermissionDenied("certificates are given out over TLS only");
  } else if (bytes > kMaxRequestBytes) {
    refused = InvalidArgument("the request is larger than 16 KiB");
  } else if (!enrolment_) {
    refused = FailedPrecondition(
        "this coordinator has no authority, so it cannot sign; run 'muster init' where it runs");
  } else if (!pool_.TrySubmit(
                 [reactor, work = std::move(work)] { reactor->Finish(ToGrpcStatus(work())); })) {
    refused = ResourceExhausted("too many nodes enrol at once; try again in a second");
  }
  if (!refused.ok()) reactor->Finish(ToGrpcStatus(refused));
  return reactor;
}

EnrolService::Reactor* EnrolService::Join(Context* context, const v1::JoinRequest* request,
                                          v1::JoinResponse* response) {
  return OnPool(context, request->ByteSizeLong(), [this, context, request, response]() -> Status {
    if (request->token_id().empty()) return InvalidArgument("a join without a join token");
    const Result<std::string> certificate = enrolment_->Join(
        {request->token_id(), request->secret(), request->node(), request->request_pem()},
        SystemClock().UnixMillis());
    if (!certificate.ok()) {
      Log().warn("a join from {} was refused: {}", context->peer(), certificate.status().message());
      return certificate.status();
    }
    Log().info("node {} joined from {}, by token {}", request->node(), context->peer(),
               request->token_id());
    response->set_certificate_pem(*certificate);
    return OkStatus();
  });
}

EnrolService::Reactor* EnrolService::Renew(Context* context, const v1::RenewRequest* request,
                                           v1::RenewResponse* response) {
  return OnPool(context, request->ByteSizeLong(), [this, context, request, response]() -> Status {
    const std::optional<CertificateInfo> peer = Doorkeeper::PeerOf(*context->auth_context());
    if (!peer) return Unauthenticated("only a node that has a certificate gets the next one");
    MUSTER_ASSIGN_OR_RETURN(
        std::string certificate,
        enrolment_->Renew(*peer, request->request_pem(), SystemClock().UnixMillis()));
    Log().info("node {} has renewed its certificate", peer->identity.name);
    response->set_certificate_pem(std::move(certificate));
    return OkStatus();
  });
}

}  // namespace muster
