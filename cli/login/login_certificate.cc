#include "cli/login/login_certificate.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/login/local_login.h"
#include "cli/login/sign_in.h"
#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/coordinator_addresses.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/leader.h"
#include "common/rpc/tls.h"
#include "common/security/certificate_request.h"
#include "common/security/credentials.h"
#include "common/security/private_files.h"
#include "muster/v1/enrol_api.grpc.pb.h"

namespace muster {
namespace {

// The coordinator may have to fetch two documents of the issuer.
constexpr auto kLoginLimit = std::chrono::seconds(25);
constexpr char kAgain[] = "\n  next: muster login";

// What a request's subject says; the coordinator puts the user's name into the certificate.
Identity RequestIdentity(const std::string& cluster) { return {Role::kUser, "login", cluster}; }

std::vector<std::string> ListOf(const std::string& addresses) {
  std::vector<std::string> list;
  std::istringstream words(addresses);
  for (std::string address; std::getline(words, address, ',');)
    if (std::ranges::find(list, address) == list.end()) list.push_back(address);
  return list;
}

// The address of a coordinator that takes connections; where none does, that of any.
Result<std::string> Reachable(CoordinatorAddresses& places, const std::string& ca_pem,
                              Interrupt& interrupt) {
  const auto given_up = [&interrupt] { return interrupt.requested(); };
  for (std::size_t tried = 0;; ++tried) {
    MUSTER_RETURN_IF_ERROR(places.Resolve());
    const std::string address = places.Current();
    if (!places.HasOthers() || tried > places.all().size() || interrupt.requested() ||
        TakesConnections(*OpenTlsChannelToJoin(address, ca_pem), kConnectLimit, given_up))
      return address;
    places.Failed(address, "");
  }
}

// At the coordinator that leads: a standby says where that one logs people in.
template <typename Request, typename Response, typename Method>
Result<Response> CallJoin(const std::string& addresses, const std::string& ca_pem,
                          const Request& request, Method method, Interrupt& interrupt) {
  CoordinatorAddresses places(ListOf(addresses));
  const Deadline until = Deadline::After(kLoginLimit);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const std::string address, Reachable(places, ca_pem, interrupt));
    const auto stub = v1::Enrol::NewStub(OpenTlsChannelToJoin(address, ca_pem));
    grpc::ClientContext context;
    context.set_deadline(SystemDeadline(until.Remaining()));
    Response response;
    const Status status = FromGrpcStatus(((*stub).*method)(&context, request, &response));
    if (status.ok()) return response;
    const auto standby = StandbyAnswerOf(context);
    const bool has_way = standby && (standby->none_leads || !standby->leader.empty());
    if (has_way && !until.Expired()) {
      places.Failed(address, standby->leader);
      if (interrupt.WaitFor(standby->none_leads ? kElectionPause : kFollowPause))
        return Cancelled("interrupted");
      continue;
    }
    const bool silent =
        status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded;
    if (!silent || standby) return status;
    return Unavailable("the coordinator at " + address + " does not log in: " + status.message());
  }
}

std::int64_t LeftMs(const Credentials& credentials) {
  return credentials.not_after_ms - SystemClock().UnixMillis();
}

bool IsDue(const Credentials& credentials) {
  return LeftMs(credentials) <
         std::chrono::duration_cast<std::chrono::milliseconds>(kRenewBefore).count();
}

Status Ended(const LoginStore& store, const Login& login, const std::string& why) {
  MUSTER_RETURN_IF_ERROR(store.End(login));
  return Unauthenticated("the login of " + login.user + " to cluster " + login.cluster +
                         " has ended: " + why + kAgain);
}

// The refresh token that comes with the answer is stored before anything else can fail: the one
// that was used is worth nothing any more.
Status Renew(const LoginStore& store, Login login, const Credentials& now, Interrupt& interrupt) {
  IssuerClient issuer(login.issuer_ca_pem, interrupt);
  MUSTER_ASSIGN_OR_RETURN(const std::string token, store.RefreshToken(login));
  MUSTER_ASSIGN_OR_RETURN(const IssuerAnswer sent,
                          issuer.Post(login.token_endpoint, RefreshForm(login.client_id, token)));
  MUSTER_ASSIGN_OR_RETURN(const TokenAnswer answer, ParseTokenAnswer(sent));
  if (answer.state != TokenState::kGranted)
    return Ended(store, login, "the issuer says " + answer.why);
  if (!answer.tokens.refresh_token.empty()) login.refresh_token = answer.tokens.refresh_token;
  // Some issuers renew no ID tokens: the login then lasts as long as its certificate.
  if (answer.tokens.id_token.empty()) {
    login.refresh_token.clear();
    login.place = TokenPlace::kFile;
  }
  MUSTER_RETURN_IF_ERROR(store.Save(&login));
  if (answer.tokens.id_token.empty()) return OkStatus();
  LoginKey key{.key_pem = now.key_pem};
  MUSTER_ASSIGN_OR_RETURN(key.csr_pem, MakeRequestFor(RequestIdentity(login.cluster), key.key_pem));
  return CompleteLogin(store, key, now.ca_pem, answer.tokens.id_token, interrupt, &login);
}

Result<Login> WriteLocal(const LoginStore& store, const std::string& address,
                         const std::string& key_pem, const LocalLogin& local) {
  Login login{.cluster = local.cluster,
              .user = local.user,
              .address = address,
              .coordinator = local.coordinator};
  MUSTER_RETURN_IF_ERROR(store.Save(&login));
  MUSTER_RETURN_IF_ERROR(
      WriteCredentials(store.DirOf(login.cluster), {local.ca_pem, local.certificate_pem, key_pem}));
  return login;
}

Status RenewLocally(const LoginStore& store, const Login& login, const Credentials& now) {
  MUSTER_ASSIGN_OR_RETURN(const std::string csr_pem,
                          MakeRequestFor(RequestIdentity(login.cluster), now.key_pem));
  const Result<LocalLogin> local = LogInLocally(login.address, csr_pem);
  if (local.status().code() == StatusCode::kPermissionDenied)
    return Ended(store, login, local.status().message());
  if (!local.ok()) return local.status();
  if (local->cluster != login.cluster)
    return Ended(store, login, "another cluster is at " + login.address);
  return WriteLocal(store, login.address, now.key_pem, *local).status();
}

}  // namespace

bool Renews(const Login& login) {
  return IsLocalLogin(login.address) || login.place == TokenPlace::kKeyring ||
         !login.refresh_token.empty();
}

Result<Login> LogInByAccount(const LoginStore& store, const std::string& address) {
  // The name of the cluster comes with the answer.
  MUSTER_ASSIGN_OR_RETURN(const LoginKey key, NewLoginKey("local"));
  MUSTER_ASSIGN_OR_RETURN(const LocalLogin local, LogInLocally(address, key.csr_pem));
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(store.root()));
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(store.root()));
  MUSTER_ASSIGN_OR_RETURN(Login login, WriteLocal(store, address, key.key_pem, local));
  MUSTER_RETURN_IF_ERROR(store.MakeCurrent(login.cluster));
  return login;
}

Result<v1::IssuersResponse> AskForIssuers(const std::string& address, const std::string& ca_pem,
                                          Interrupt& interrupt) {
  return CallJoin<v1::IssuersRequest, v1::IssuersResponse>(address, ca_pem, {},
                                                           &v1::Enrol::Stub::Issuers, interrupt);
}

Result<LoginKey> NewLoginKey(const std::string& cluster) {
  MUSTER_ASSIGN_OR_RETURN(KeyAndRequest own, MakeCertificateRequest(RequestIdentity(cluster)));
  LoginKey key{.key_pem = std::move(own.key_pem), .csr_pem = std::move(own.csr_pem)};
  MUSTER_ASSIGN_OR_RETURN(key.nonce, KeyOfRequest(key.csr_pem));
  return key;
}

Status CompleteLogin(const LoginStore& store, const LoginKey& key, const std::string& ca_pem,
                     const std::string& id_token, Interrupt& interrupt, Login* login) {
  v1::LoginRequest request;
  request.set_issuer(login->issuer);
  request.set_id_token(id_token);
  request.set_request_pem(key.csr_pem);
  MUSTER_ASSIGN_OR_RETURN(
      const v1::LoginResponse response,
      (CallJoin<v1::LoginRequest, v1::LoginResponse>(
          login->others.empty() ? login->address : login->address + "," + login->others, ca_pem,
          request, &v1::Enrol::Stub::Login, interrupt)));
  login->user = response.user();
  login->coordinator = response.coordinator();
  login->others = response.logins();
  MUSTER_RETURN_IF_ERROR(store.Save(login));
  return WriteCredentials(store.DirOf(login->cluster),
                          {ca_pem, response.certificate_pem(), key.key_pem});
}

Result<RemoteCoordinator> CoordinatorOfLogin(const LoginStore& store, Interrupt& interrupt) {
  MUSTER_ASSIGN_OR_RETURN(const std::string cluster, store.Current());
  const std::string dir = store.DirOf(cluster);
  const auto in_use = [&]() -> Result<RemoteCoordinator> {
    MUSTER_ASSIGN_OR_RETURN(const Login login, store.Load(cluster));
    return RemoteCoordinator{login.coordinator, dir};
  };
  auto credentials = LoadCredentials(dir);
  if (credentials.ok() && !IsDue(*credentials)) return in_use();
  const auto lock = LockDirectory(store.root());
  const Status unlocked = lock.status();
  // Another command may have renewed it in the meantime, or ended it.
  credentials = LoadCredentials(dir);
  if (credentials.ok() && !IsDue(*credentials)) return in_use();
  MUSTER_ASSIGN_OR_RETURN(const Login login, store.Load(cluster));
  if (!credentials.ok())
    return Unauthenticated("you are not logged in to cluster " + cluster + " any more" + kAgain);
  Status renewed = unlocked;
  if (renewed.ok() && Renews(login))
    renewed = IsLocalLogin(login.address) ? RenewLocally(store, login, *credentials)
                                          : Renew(store, login, *credentials, interrupt);
  if (!renewed.ok() && renewed.code() != StatusCode::kUnavailable) return renewed;
  MUSTER_ASSIGN_OR_RETURN(const Credentials next, LoadCredentials(dir));
  if (LeftMs(next) > 0) return in_use();
  if (!renewed.ok()) return renewed.WithContext("the login of " + login.user + " is not renewed");
  return Unauthenticated("the login of " + login.user + " to cluster " + cluster + " has expired" +
                         kAgain);
}

}  // namespace muster
