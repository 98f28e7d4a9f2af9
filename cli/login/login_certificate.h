// A login after it was made: its certificate, and the next one.
//
// One thread; blocks for the issuer and the coordinator.
#pragma once

#include <string>

#include "cli/base/interrupt.h"
#include "cli/client/cluster_client.h"
#include "cli/login/login_store.h"
#include "common/base/result.h"
#include "common/oidc/requests.h"
#include "muster/v1/enrol_api.pb.h"

namespace muster {

// A certificate with less left is renewed.
inline constexpr Duration kRenewBefore = std::chrono::minutes(10);

// The issuers of the cluster that `address`, of one or several coordinators, and `ca_pem` name.
Result<v1::IssuersResponse> AskForIssuers(const std::string& address, const std::string& ca_pem,
                                          Interrupt& interrupt);

// The key of a login, and what is shown of it.
struct LoginKey {
  std::string key_pem;
  std::string csr_pem;
  std::string nonce;  // the key's hash: an ID token with it is of no use with another key
};
Result<LoginKey> NewLoginKey(const std::string& cluster);

// Has the ID token made a certificate, by any of the coordinators that `login` knows, and writes
// credentials and login.json: `login` gets the user and where the coordinators are.
Status CompleteLogin(const LoginStore& store, const LoginKey& key, const std::string& ca_pem,
                     const std::string& id_token, Interrupt& interrupt, Login* login);

// The login of this process's account at the socket `address`; the files are written. Errors are
// LogInLocally's.
Result<Login> LogInByAccount(const LoginStore& store, const std::string& address);

// Whether the certificate is renewed while it is used.
bool Renews(const Login& login);

// The coordinator of the latest login, with a certificate that is renewed if it ends within
// kRenewBefore: other commands that run at the same time wait for that, since a refresh token is
// good once. A renewal that fails for now leaves a certificate that is good in use. One that the
// issuer refuses ends the login: kUnauthenticated, with the command that begins a new one.
// kNotFound: there is no login.
Result<RemoteCoordinator> CoordinatorOfLogin(const LoginStore& store, Interrupt& interrupt);

}  // namespace muster
