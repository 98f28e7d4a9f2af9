#include "coordinator/service/page_sign_in.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "common/base/failpoint.h"
#include "common/base/json.h"
#include "common/base/wall_time.h"
#include "common/oidc/requests.h"
#include "common/security/encoding.h"
#include "common/telemetry/cookies.h"
#include "common/telemetry/log.h"
#include "common/telemetry/query.h"
#include "coordinator/service/login_admission.h"

namespace muster {
namespace {

constexpr char kBegunCookie[] = "__Host-muster-signin";
constexpr std::size_t kMaxFieldBytes = 1024;
constexpr char kAgain[] = "\nOpen the page again to sign in.\n";

std::chrono::seconds Seconds(Duration duration) {
  return std::chrono::duration_cast<std::chrono::seconds>(duration);
}

// A path of this server: never one that a browser takes for another's, as "//evil.example".
std::string SafePath(std::string_view path) {
  const bool plain = std::ranges::all_of(
      path, [](char c) { return c > ' ' && c < '\x7f' && c != '\\' && c != '"'; });
  const bool ours = path.starts_with('/') && !path.starts_with("//") && plain;
  return ours && path.size() <= kMaxFieldBytes ? std::string(path) : "/";
}

// As a browser names it: the issuer compares the redirect with those that it knows.
bool IsHost(std::string_view host) {
  return !host.empty() && host.size() <= 255 && std::ranges::all_of(host, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == ':' ||
           c == '[' || c == ']';
  });
}

HttpResponse Refusal(int code, const std::string& why) {
  return {.status = code,
          .body = why + kAgain,
          .cookies = {MakeCookie(kBegunCookie, "", std::chrono::seconds(0))}};
}

int CodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument: return 400;
    case StatusCode::kUnavailable:
    case StatusCode::kResourceExhausted: return 503;
    default: return 403;
  }
}

}  // namespace

struct PageSignIn::Begun {
  std::string issuer;
  std::string to;  // where it leads in the end
  CodeLogin login;

  std::string ToCookie() const {
    std::string text;
    for (const std::string& part : {issuer, to, login.client_id, login.redirect_uri, login.state,
                                    login.nonce, login.verifier})
      text += (text.empty() ? "" : ".") + ToBase64Url(part);
    return text;
  }
  static Result<Begun> FromCookie(std::string_view cookie) {
    std::array<std::string, 7> parts;
    for (std::string& part : parts) {
      const std::string_view text = cookie.substr(0, cookie.find('.'));
      cookie.remove_prefix(std::min(cookie.size(), text.size() + 1));
      const Result<std::string> read = FromBase64Url(text);
      if (!read.ok() || read->empty())
        return Unauthenticated(
            "this browser has not begun to sign in, or longer than ten minutes ago");
      part = *read;
    }
    return Begun{parts[0],
                 SafePath(parts[1]),
                 {.client_id = parts[2],
                  .redirect_uri = parts[3],
                  .state = parts[4],
                  .nonce = parts[5],
                  .verifier = parts[6]}};
  }
};

void PageSignIn::AddRoutes(HttpServer& server) {
  const auto bound = [this](auto handler) {
    return [this, handler](const HttpRequest& request, const HttpResponder& reply) {
      (this->*handler)(request, reply);
    };
  };
  server.HandleLater("/auth/sign-in", bound(&PageSignIn::Begin));
  server.HandleLater("/auth/callback", bound(&PageSignIn::Callback));
  server.HandleLater("/auth/session", bound(&PageSignIn::Show));
  server.HandlePost("/auth/sign-out", bound(&PageSignIn::SignOut));
}

const PageSignIn::Session* PageSignIn::SessionOf(std::string_view cookie) const {
  const auto found = sessions_.find(Sha256(cookie));
  const bool good = found != sessions_.end() &&
                    SystemClock().UnixMillis() < found->second.info.not_after_ms &&
                    parts_.authenticator.CheckRevoked(found->second.info).ok();
  return good ? &found->second : nullptr;
}

std::optional<CertificateInfo> PageSignIn::Find(std::string_view session) const {
  const Session* found = SessionOf(session);
  return found == nullptr ? std::nullopt : std::optional(found->info);
}

Status PageSignIn::TakePlace() {
  if (closed_) return Unavailable("the coordinator is shutting down");
  if (under_way_ >= kMaxUnderWay)
    return ResourceExhausted("too many sign in at once; try again in a second");
  return OkStatus();
}

void PageSignIn::Begin(const HttpRequest& request, const HttpResponder& reply) {
  const auto& issuers = parts_.runtime.controller().Users().users->issuers;
  const std::string url = QueryValue(request.query, "issuer").value_or("");
  const auto issuer = std::ranges::find_if(
      issuers, [&](const IssuerSpec& spec) { return url.empty() || spec.url == url; });
  if (issuer == issuers.end()) return reply(Refusal(403, NoSuchIssuer(url).message()));
  if (!IsHost(request.host)) return reply(Refusal(400, "The request names no host."));
  Result<CodeLogin> login =
      NewCodeLogin(issuer->client_id, "https://" + request.host + "/auth/callback");
  if (!login.ok()) return reply(Refusal(503, login.status().message()));
  Begun begun{.issuer = issuer->url,
              .to = SafePath(QueryValue(request.query, "to").value_or("/")),
              .login = *std::move(login)};
  Status status = TakePlace();
  if (status.ok())
    status = parts_.issuers.Submit(
        begun.issuer, [this, &loop = parts_.loop, begun, reply](IssuerLanes::Issuer& asked) {
          const Result<IssuerMetadata> metadata = asked.verifier().Metadata(SystemClock().Now());
          loop.Post([this, begun, metadata, reply] { Lead(begun, metadata, reply); });
        });
  if (!status.ok()) return reply(Refusal(CodeOf(status), status.message()));
  ++under_way_;
}

void PageSignIn::Lead(const Begun& begun, const Result<IssuerMetadata>& metadata,
                      const HttpResponder& reply) {
  --under_way_;
  if (!metadata.ok()) return reply(Refusal(503, metadata.status().message()));
  reply({.status = 303,
         .location = AuthorizationUrl(*metadata, begun.login),
         .cookies = {MakeCookie(kBegunCookie, begun.ToCookie(), Seconds(kSignInLasts))}});
}

void PageSignIn::Callback(const HttpRequest& request, const HttpResponder& reply) {
  const Result<Begun> begun = Begun::FromCookie(CookieValue(request.cookies, kBegunCookie));
  if (!begun.ok()) return reply(Refusal(403, begun.status().message()));
  const Result<std::string> code = CodeFromQuery(request.query, begun->login, begun->issuer);
  if (!code.ok()) return Refuse(request, "", code.status(), reply);
  const UserDirectory& users = *parts_.runtime.controller().Users().users;
  if (users.FindIssuer(begun->issuer) == nullptr)
    return Refuse(request, "", NoSuchIssuer(begun->issuer), reply);
  Redeem(request, *begun, *code, reply);
}

void PageSignIn::Redeem(const HttpRequest& request, const Begun& begun, const std::string& code,
                        const HttpResponder& reply) {
  const auto redeem = [begun, code](IssuerLanes::Issuer& issuer) -> Result<IdClaims> {
    const TimePoint now = SystemClock().Now();
    MUSTER_ASSIGN_OR_RETURN(const IssuerMetadata metadata, issuer.verifier().Metadata(now));
    MUSTER_ASSIGN_OR_RETURN(const IssuerAnswer answer,
                            issuer.Post(metadata.token_endpoint, RedeemForm(begun.login, code)));
    MUSTER_ASSIGN_OR_RETURN(const TokenAnswer tokens, ParseTokenAnswer(answer));
    if (tokens.state != TokenState::kGranted)
      return Unauthenticated("the issuer refuses the login: " + tokens.why);
    MUSTER_ASSIGN_OR_RETURN(const IdClaims claims,
                            issuer.verifier().Verify(tokens.tokens.id_token,
                                                     {.issuer = begun.issuer,
                                                      .client_id = begun.login.client_id,
                                                      .nonce = begun.login.nonce,
                                                      .now_ms = SystemClock().UnixMillis()},
                                                     now));
    if (!claims.has_nonce) return Unauthenticated("the ID token is refused: it has no nonce");
    return claims;
  };
  Status status = TakePlace();
  if (status.ok())
    status = parts_.issuers.Submit(begun.issuer, [this, &loop = parts_.loop, redeem, request, begun,
                                                  reply](IssuerLanes::Issuer& issuer) {
      const Result<IdClaims> claims = redeem(issuer);
      loop.Post(
          [this, request, begun, claims, reply] { OnVerified(request, begun, claims, reply); });
    });
  if (!status.ok()) return reply(Refusal(CodeOf(status), status.message()));
  ++under_way_;
}

void PageSignIn::OnVerified(const HttpRequest& request, const Begun& begun,
                            const Result<IdClaims>& claims, const HttpResponder& reply) {
  --under_way_;
  if (!claims.ok()) return Refuse(request, "", claims.status(), reply);
  const UserIdentity identity{begun.issuer, claims->subject};
  const Result<std::string> user =
      AdmitLogin(*parts_.runtime.controller().Users().users, {identity, begun.login.client_id});
  if (!user.ok()) return Refuse(request, IdentityText(identity), user.status(), reply);
  const Result<std::string> session = Open(*user);
  if (!session.ok()) return Refuse(request, IdentityText(identity), session.status(), reply);
  Failpoint("page.session");
  Log().info("user {} has signed in to the page from {}", *user, request.address);
  const std::int64_t until = sessions_.at(Sha256(*session)).info.not_after_ms;
  RequestNoted noted{.actor = {.kind = Actor::Kind::kUser, .name = *user, .peer = request.address},
                     .operation = "SignIn",
                     .object = IdentityText(identity),
                     .status = OkStatus(),
                     .detail = "session until " + UtcTime(until)};
  const HttpResponse answer{.status = 303,
                            .location = begun.to,
                            .cookies = {MakeCookie(kSessionCookie, *session, Seconds(lasts_)),
                                        MakeCookie(kBegunCookie, "", std::chrono::seconds(0))}};
  parts_.runtime.Handle(std::move(noted), [this, answer, reply] {
    parts_.runtime.AfterTrace([answer, reply](const Status& durable) {
      Failpoint("page.signed_in");
      reply(durable.ok() ? answer : Refusal(503, durable.message()));
    });
  });
}

// The value of its cookie.
Result<std::string> PageSignIn::Open(const std::string& user) {
  const std::int64_t now_ms = SystemClock().UnixMillis();
  std::erase_if(sessions_, [&](const auto& s) { return s.second.info.not_after_ms <= now_ms; });
  std::vector<std::map<std::string, Session>::iterator> own;
  for (auto session = sessions_.begin(); session != sessions_.end(); ++session)
    if (session->second.info.identity.name == user) own.push_back(session);
  if (own.size() >= kMaxOfAUser)
    sessions_.erase(*std::ranges::min_element(
        own, {}, [](const auto& session) { return session->second.info.issued_ms; }));
  if (sessions_.size() >= kMaxSessions)
    return ResourceExhausted("too many have signed in; try again later");
  const CertificateInfo info{
      .identity = {Role::kUser, user, parts_.authenticator.cluster()},
      .issued_ms = now_ms,
      .not_after_ms =
          now_ms + std::chrono::duration_cast<std::chrono::milliseconds>(lasts_).count()};
  MUSTER_RETURN_IF_ERROR(parts_.authenticator.CheckRevoked(info));
  MUSTER_ASSIGN_OR_RETURN(const std::string value, RandomText());
  MUSTER_ASSIGN_OR_RETURN(const std::string csrf, RandomText());
  sessions_[Sha256(value)] = {info, csrf};
  return value;
}

void PageSignIn::Show(const HttpRequest& request, const HttpResponder& reply) const {
  nlohmann::json out = {{"user", nullptr}, {"issuers", nlohmann::json::array()}};
  for (const IssuerSpec& issuer : parts_.runtime.controller().Users().users->issuers)
    out["issuers"].push_back(issuer.url);
  if (request.peer && request.peer->identity.role == Role::kUser)
    out["user"] = request.peer->identity.name;
  if (const Session* session = SessionOf(CookieValue(request.cookies, kSessionCookie))) {
    out["csrf"] = session->csrf;
    out["until_unix_ms"] = session->info.not_after_ms;
  }
  reply({.content_type = "application/json", .body = out.dump()});
}

void PageSignIn::SignOut(const HttpRequest& request, const HttpResponder& reply) {
  const std::string_view cookie = CookieValue(request.cookies, kSessionCookie);
  const Session* session = SessionOf(cookie);
  if (session == nullptr || !EqualInConstantTime(request.csrf, session->csrf))
    return reply(Refusal(403, "This needs a session and its token."));
  Log().info("user {} has signed out of the page", session->info.identity.name);
  sessions_.erase(Sha256(cookie));
  reply({.body = "signed out\n",
         .cookies = {MakeCookie(kSessionCookie, "", std::chrono::seconds(0))}});
}

void PageSignIn::Refuse(const HttpRequest& request, const std::string& identity,
                        const Status& status, const HttpResponder& reply) {
  Log().warn("a sign-in from {} was refused: {}", request.address, status.message());
  parts_.refusals.Note({.actor = {.peer = request.address},
                        .operation = "SignIn",
                        .object = identity,
                        .status = status});
  reply(Refusal(CodeOf(status), status.message()));
}

}  // namespace muster
