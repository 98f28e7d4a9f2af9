#include "coordinator/service/login_service.h"

#include <utility>

#include "common/base/clock.h"
#include "common/base/failpoint.h"
#include "common/base/wall_time.h"
#include "common/rpc/grpc_status.h"
#include "common/security/certificate_request.h"
#include "common/telemetry/log.h"
#include "coordinator/service/login_admission.h"

namespace muster {
// A login that is under way; the messages are gRPC's until it is finished, which End does.
struct LoginService::Call {
  std::string issuer;
  std::string id_token;
  std::string csr_pem;
  std::string key;  // of the request
  std::string peer;
  std::string client_id;
  v1::LoginResponse* response = nullptr;
  Reactor* reactor = nullptr;
};

LoginService::LoginService(LoginParts parts, LoginOptions options)
    : parts_(parts), options_(std::move(options)), taken_(SystemClock().UnixMillis()) {}

LoginService::Reactor* LoginService::Issuers(Context* context, v1::IssuersResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  parts_.loop.Post([this, response, reactor] {
    if (!closed_.ok()) return reactor->Finish(ToGrpcStatus(closed_));
    response->set_cluster(options_.cluster);
    for (const IssuerSpec& issuer : parts_.runtime.controller().Users().users->issuers) {
      v1::Issuer& to = *response->add_issuers();
      to.set_url(issuer.url);
      to.set_client_id(issuer.client_id);
    }
    response->set_issuer_ca_pem(parts_.issuers.ca_pem());
    reactor->Finish(grpc::Status::OK);
  });
  return reactor;
}

LoginService::Reactor* LoginService::Login(Context* context, const v1::LoginRequest* request,
                                           v1::LoginResponse* response) {
  Reactor* reactor = context->DefaultReactor();
  if (request->ByteSizeLong() > kMaxRequestBytes) {
    reactor->Finish(ToGrpcStatus(InvalidArgument("the request is larger than 16 KiB")));
    return reactor;
  }
  const auto call = std::make_shared<Call>(Call{.issuer = request->issuer(),
                                                .id_token = request->id_token(),
                                                .csr_pem = request->request_pem(),
                                                .peer = context->peer(),
                                                .response = response,
                                                .reactor = reactor});
  parts_.loop.Post([this, call] { Start(call); });
  return reactor;
}

void LoginService::Start(const CallPtr& call) {
  calls_.insert(call);
  const Status submitted = Submit(call);
  if (submitted.code() == StatusCode::kPermissionDenied) return Refuse(call, "", submitted);
  if (!submitted.ok()) End(call, submitted);
}

Status LoginService::Submit(const CallPtr& call) {
  MUSTER_RETURN_IF_ERROR(closed_);
  if (!options_.authority) return FailedPrecondition(options_.without_authority);
  const IssuerSpec* issuer = parts_.runtime.controller().Users().users->FindIssuer(call->issuer);
  if (issuer == nullptr) return NoSuchIssuer(call->issuer);
  if (calls_.size() > kMaxCalls)
    return ResourceExhausted("too many log in at once; try again in a second");
  call->client_id = issuer->client_id;
  // Not `this`: what is posted is dropped where the loop has ended.
  return parts_.issuers.Submit(
      call->issuer, [this, call, &loop = parts_.loop](IssuerLanes::Issuer& issuer) {
        const Result<std::string> key = KeyOfRequest(call->csr_pem);
        Result<IdClaims> claims = key.status().ok() ? Result<IdClaims>(IdClaims()) : key.status();
        if (key.ok()) {
          call->key = *key;
          claims = issuer.verifier().Verify(call->id_token,
                                            {.issuer = call->issuer,
                                             .client_id = call->client_id,
                                             .nonce = *key,
                                             .now_ms = SystemClock().UnixMillis()},
                                            SystemClock().Now());
        }
        loop.Post([this, call, claims] { OnVerified(call, claims); });
      });
}

void LoginService::OnVerified(const CallPtr& call, const Result<IdClaims>& claims) {
  if (!calls_.contains(call)) return;  // ended in the meantime
  if (!claims.ok()) return Refuse(call, "", claims.status());
  const Result<Grant> grant = Admit(*call, *claims);
  const std::string identity = IdentityText({call->issuer, claims->subject});
  if (!grant.ok()) return Refuse(call, identity, grant.status());
  Note(*grant, call->peer, identity, [this, call, grant = *grant](const Status& durable) {
    if (durable.ok() && calls_.contains(call)) {
      call->response->set_certificate_pem(grant.chain_pem);
      call->response->set_user(grant.user);
      call->response->set_coordinator(grant.coordinator);
      call->response->set_logins(places_().logins);
    }
    End(call, durable);
  });
}

// The file may have changed since the token was sent: it counts as it is now.
Result<LoginService::Grant> LoginService::Admit(const Call& call, const IdClaims& claims) {
  MUSTER_ASSIGN_OR_RETURN(const std::string user,
                          AdmitLogin(*parts_.runtime.controller().Users().users,
                                     {{call.issuer, claims.subject}, call.client_id}));
  MUSTER_RETURN_IF_ERROR(taken_.Take(call.id_token, claims, call.key, SystemClock().UnixMillis()));
  return Certify(user, call.csr_pem);
}

Result<LoginService::Grant> LoginService::Certify(const std::string& user,
                                                  const std::string& csr_pem) const {
  MUSTER_ASSIGN_OR_RETURN(
      std::string chain,
      options_.authority->Sign(csr_pem, user, options_.lifetime, SystemClock().UnixMillis()));
  MUSTER_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(chain));
  MUSTER_RETURN_IF_ERROR(parts_.authenticator.CheckRevoked(info));
  Failpoint("login.certified");
  return Grant{user, std::move(chain), places_().calls, options_.cluster, options_.ca_pem};
}

void LoginService::LogInLocally(const LocalRequest& request,
                                std::function<void(Result<Grant>)> done) {
  const auto admit = [&]() -> Result<Grant> {
    MUSTER_RETURN_IF_ERROR(closed_);
    if (!options_.authority) return FailedPrecondition(options_.without_authority);
    MUSTER_ASSIGN_OR_RETURN(
        const std::string user,
        AdmitAccount(*parts_.runtime.controller().Users().users, request.account));
    return Certify(user, request.csr_pem);
  };
  const Result<Grant> grant = admit();
  const std::string identity = "account " + request.account;
  if (!grant.ok()) {
    NoteRefusal(request.peer, identity, grant.status());
    return done(grant.status());
  }
  Note(*grant, request.peer, identity,
       [grant = *grant, done = std::move(done)](const Status& durable) {
         done(durable.ok() ? Result<Grant>(grant) : durable);
       });
}

void LoginService::NoteRefusal(const std::string& peer, const std::string& identity,
                               const Status& status) {
  Log().warn("a login from {} was refused: {}", peer, status.message());
  parts_.refusals.Note(
      {.actor = {.peer = peer}, .operation = "Login", .object = identity, .status = status});
}

void LoginService::Refuse(const CallPtr& call, const std::string& identity, const Status& status) {
  NoteRefusal(call->peer, identity, status);
  End(call, status);
}

void LoginService::Note(const Grant& grant, const std::string& peer, const std::string& identity,
                        std::function<void(const Status& durable)> done) {
  const CertificateInfo info = *ReadCertificate(grant.chain_pem);
  Log().info("user {} has logged in from {}", grant.user, peer);
  RequestNoted login{
      .actor = {.kind = Actor::Kind::kUser, .name = grant.user, .peer = peer},
      .operation = "Login",
      .object = identity,
      .status = OkStatus(),
      .detail = "certificate " + info.serial + " until " + UtcTime(info.not_after_ms)};
  parts_.runtime.Handle(std::move(login), [this, done = std::move(done)] {
    parts_.runtime.AfterTrace([done](const Status& durable) {
      Failpoint("login.noted");
      done(durable);
    });
  });
}

void LoginService::End(const CallPtr& call, const Status& status) {
  if (calls_.erase(call) > 0) call->reactor->Finish(ToGrpcStatus(status));
}

void LoginService::Close(const Status& reason) {
  closed_ = reason;
  for (const CallPtr& call : std::set<CallPtr>(calls_)) End(call, reason);
}

}  // namespace muster
