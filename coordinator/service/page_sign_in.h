// PageSignIn: people sign in to the status page by OpenID Connect, and what their browsers have
// then (docs/users.md).
//
//   GET  /auth/sign-in[?issuer=URL][&to=/PATH]   leads to the issuer
//   GET  /auth/callback?code=...&state=...       its answer: sets the session cookie, leads to PATH
//   GET  /auth/session                           who has signed in, and where people can
//   POST /auth/sign-out                          with X-CSRF-Token
//
// What belongs to one sign-in (state, nonce, the verifier of PKCE) lies in a cookie of ten minutes
// of that browser, so that strangers cost no memory here. A session is as good as a certificate of
// a login: for an hour at most, until it is revoked, in this process alone.
//
// Owned by the server; the loop's thread. Codes are redeemed on the threads of IssuerLanes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/oidc/id_token.h"
#include "common/oidc/issuer.h"
#include "common/security/certificate.h"
#include "common/telemetry/http_server.h"
#include "coordinator/service/login_parts.h"

namespace muster {

class PageSignIn {
 public:
  static constexpr std::size_t kMaxUnderWay = 256;
  static constexpr std::size_t kMaxSessions = 16'384;
  static constexpr std::size_t kMaxOfAUser = 16;  // the oldest ends then
  static constexpr auto kSignInLasts = std::chrono::minutes(10);

  PageSignIn(LoginParts parts, Duration session_lasts) : parts_(parts), lasts_(session_lasts) {}

  void AddRoutes(HttpServer& server);
  // Whom the value of the session cookie stands for. Whether that user may do anything is for the
  // caller to ask.
  std::optional<CertificateInfo> Find(std::string_view session) const;
  // Refuses new sign-ins.
  void Close() { closed_ = true; }

 private:
  // One sign-in, as the browser's cookie has it.
  struct Begun;
  struct Session {
    CertificateInfo info;
    std::string csrf;
  };

  void Begin(const HttpRequest& request, const HttpResponder& reply);
  void Lead(const Begun& begun, const Result<IssuerMetadata>& metadata, const HttpResponder& reply);
  void Callback(const HttpRequest& request, const HttpResponder& reply);
  void Redeem(const HttpRequest& request, const Begun& begun, const std::string& code,
              const HttpResponder& reply);
  void OnVerified(const HttpRequest& request, const Begun& begun, const Result<IdClaims>& claims,
                  const HttpResponder& reply);
  Result<std::string> Open(const std::string& user);
  void Show(const HttpRequest& request, const HttpResponder& reply) const;
  void SignOut(const HttpRequest& request, const HttpResponder& reply);
  void Refuse(const HttpRequest& request, const std::string& identity, const Status& status,
              const HttpResponder& reply);
  Status TakePlace();
  const Session* SessionOf(std::string_view cookie) const;

  LoginParts parts_;
  const Duration lasts_;
  std::map<std::string, Session> sessions_;  // by the hash of the cookie's value
  std::size_t under_way_ = 0;                // works of issuers
  bool closed_ = false;
};

}  // namespace muster
