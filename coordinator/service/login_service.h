// LoginService: people log in (docs/users.md). By an ID token of an issuer that the user file
// lists, or by an account of this machine (local_logins.h), it gives the user of that identity a
// certificate for an hour at most.
//
// Owned by the server. gRPC's threads call the RPC functions, which copy the request and post. The
// token is verified on a thread of its issuer, as its keys may have to be fetched: so neither the
// loop, nor nodes that join, nor logins at another issuer wait for one that is slow. On the loop
// then follow the user, the certificate, which takes less than a millisecond, and the entry in the
// audit trail, without which no certificate is handed out.
//
// At most kMaxCalls are under way; the listener limits their rate. Close ends them all.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/oidc/id_token.h"
#include "common/security/user_authority.h"
#include "coordinator/service/login_parts.h"
#include "coordinator/service/taken_tokens.h"
#include "muster/v1/enrol_api.pb.h"

namespace muster {

struct LoginOptions {
  std::string cluster;                     // of the certificates
  std::string ca_pem;                      // of the cluster
  std::optional<UserAuthority> authority;  // none: logins are refused, with `without_authority`
  std::string without_authority;
  Duration lifetime = kUserCertificateLifetime;
};

class LoginService {
 public:
  static constexpr std::size_t kMaxRequestBytes = 16 << 10;
  static constexpr std::size_t kMaxCalls = 256;

  LoginService(LoginParts parts, LoginOptions options);

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* Issuers(Context* context, v1::IssuersResponse* response);
  Reactor* Login(Context* context, const v1::LoginRequest* request, v1::LoginResponse* response);

  // What a login is given.
  struct Grant {
    std::string user;
    std::string chain_pem;
    std::string coordinator;  // where the certificate counts: addresses, separated by commas
    std::string cluster;
    std::string ca_pem;
  };
  struct LocalRequest {
    std::string account;  // as the kernel and this machine's databases say
    std::string csr_pem;
    std::string peer;  // for the audit trail
  };
  // On the loop; `done` is called once, there, when the login is in the audit trail.
  void LogInLocally(const LocalRequest& request, std::function<void(Result<Grant>)> done);

  // All coordinators, as other machines reach them, separated by commas, the own first.
  struct Places {
    std::string calls;   // where certificates count
    std::string logins;  // where people log in
  };
  // Before the loop runs, which calls it.
  void SetPlaces(std::function<Places()> places) { places_ = std::move(places); }
  // On the loop, once: ends what is under way, and refuses new calls.
  void Close(const Status& reason);

 private:
  struct Call;
  using CallPtr = std::shared_ptr<Call>;

  void Start(const CallPtr& call);
  Status Submit(const CallPtr& call);
  void OnVerified(const CallPtr& call, const Result<IdClaims>& claims);
  Result<Grant> Admit(const Call& call, const IdClaims& claims);
  Result<Grant> Certify(const std::string& user, const std::string& csr_pem) const;
  void NoteRefusal(const std::string& peer, const std::string& identity, const Status& status);
  void Refuse(const CallPtr& call, const std::string& identity, const Status& status);
  void Note(const Grant& grant, const std::string& peer, const std::string& identity,
            std::function<void(const Status& durable)> done);
  void End(const CallPtr& call, const Status& status);

  LoginParts parts_;
  const LoginOptions options_;
  std::function<Places()> places_ = [] { return Places(); };
  std::set<CallPtr> calls_;  // under way; on the loop, like all below
  TakenTokens taken_;
  Status closed_;
};

}  // namespace muster
