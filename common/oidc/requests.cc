#include "common/oidc/requests.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/text.h"
#include "common/oidc/one_line.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::string_view kDeviceGrant = "urn:ietf:params:oauth:grant-type:device_code";
constexpr double kLongestSeconds = 3600;
constexpr std::size_t kMaxWordsBytes = 512;
constexpr std::size_t kRandomBytes = 32;

std::string Member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// What an issuer says, on one line and not at length.
std::string Words(std::string text) {
  return WithoutControls(CutText(ValidUtf8(text), kMaxWordsBytes));
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string Unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
                        HexDigit(text[i + 2]) >= 0;
    if (escape) {
      out += static_cast<char>(HexDigit(text[i + 1]) << 4 | HexDigit(text[i + 2]));
      i += 2;
    } else {
      out += text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

// Nothing: a field is there twice, so that it would be open which one counts.
std::optional<std::map<std::string, std::string>> FieldsOf(std::string_view query) {
  std::map<std::string, std::string> fields;
  while (!query.empty()) {
    const std::string_view field = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), field.size() + 1));
    const std::size_t equals = field.find('=');
    if (field.empty()) continue;
    const std::string_view value = equals == field.npos ? "" : field.substr(equals + 1);
    if (!fields.emplace(Unescaped(field.substr(0, equals)), Unescaped(value)).second)
      return std::nullopt;
  }
  return fields;
}

std::string ErrorWords(const std::string& error, const std::string& description) {
  return Words(description.empty() ? error : error + ": " + description);
}

}  // namespace

std::string ScopesFor(const IssuerMetadata& issuer) {
  const bool offline = std::find(issuer.scopes.begin(), issuer.scopes.end(), "offline_access") !=
                       issuer.scopes.end();
  return offline ? "openid offline_access" : "openid";
}

std::string CodeChallenge(std::string_view verifier) { return ToBase64Url(Sha256(verifier)); }

Result<std::string> RandomText() {
  MUSTER_ASSIGN_OR_RETURN(const std::string bytes, RandomBytes(kRandomBytes));
  return ToBase64Url(bytes);
}

Result<CodeLogin> NewCodeLogin(std::string client_id, std::string redirect_uri) {
  CodeLogin login{.client_id = std::move(client_id), .redirect_uri = std::move(redirect_uri)};
  for (std::string* text : {&login.state, &login.nonce, &login.verifier}) {
    MUSTER_ASSIGN_OR_RETURN(*text, RandomText());
  }
  return login;
}

std::string AuthorizationUrl(const IssuerMetadata& issuer, const CodeLogin& login) {
  const std::string& endpoint = issuer.authorization_endpoint;
  return endpoint + (endpoint.find('?') == endpoint.npos ? "?" : "&") +
         FormText({{"response_type", "code"},
                   {"client_id", login.client_id},
                   {"redirect_uri", login.redirect_uri},
                   {"scope", ScopesFor(issuer)},
                   {"state", login.state},
                   {"nonce", login.nonce},
                   {"code_challenge", CodeChallenge(login.verifier)},
                   {"code_challenge_method", "S256"}});
}

std::string RedeemForm(const CodeLogin& login, const std::string& code) {
  return FormText({{"grant_type", "authorization_code"},
                   {"code", code},
                   {"redirect_uri", login.redirect_uri},
                   {"client_id", login.client_id},
                   {"code_verifier", login.verifier}});
}

Result<std::string> CodeFromRequest(std::string_view request_line, const CodeLogin& login,
                                    const std::string& issuer) {
  constexpr std::string_view kStart = "GET /callback?";
  const std::size_t end = request_line.rfind(" HTTP/1.");
  if (!request_line.starts_with(kStart) || end == request_line.npos)
    return NotFound("it is not the redirect");
  return CodeFromQuery(request_line.substr(kStart.size(), end - kStart.size()), login, issuer);
}

Result<std::string> CodeFromQuery(std::string_view query, const CodeLogin& login,
                                  const std::string& issuer) {
  const auto fields = FieldsOf(query);
  if (!fields) return Unauthenticated("a field of the redirect is there twice");
  const auto field = [&](const std::string& name) {
    const auto found = fields->find(name);
    return found == fields->end() ? std::string() : found->second;
  };
  if (!EqualInConstantTime(field("state"), login.state))
    return Unauthenticated("the redirect answers another request (state)");
  if (fields->contains("iss") && field("iss") != issuer)
    return Unauthenticated("the redirect is of another issuer, '" + Words(field("iss")) + "'");
  if (fields->contains("error"))
    return PermissionDenied(ErrorWords(field("error"), field("error_description")));
  if (field("code").empty()) return Unauthenticated("the redirect has no code");
  return field("code");
}

std::string DeviceForm(const IssuerMetadata& issuer, const std::string& client_id) {
  return FormText({{"client_id", client_id}, {"scope", ScopesFor(issuer)}});
}

std::string DevicePollForm(const std::string& client_id, const std::string& device_code) {
  return FormText({{"grant_type", std::string(kDeviceGrant)},
                   {"device_code", device_code},
                   {"client_id", client_id}});
}

std::string RefreshForm(const std::string& client_id, const std::string& refresh_token) {
  return FormText({{"grant_type", "refresh_token"},
                   {"refresh_token", refresh_token},
                   {"client_id", client_id}});
}

std::string RevokeForm(const std::string& client_id, const std::string& refresh_token) {
  return FormText(
      {{"token", refresh_token}, {"token_type_hint", "refresh_token"}, {"client_id", client_id}});
}

Result<DeviceLogin> ParseDeviceLogin(const IssuerAnswer& answer) {
  const json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object() || answer.code != 200)
    return Unavailable("the issuer refuses the device flow (" + std::to_string(answer.code) + " " +
                       (body.is_object()
                            ? ErrorWords(Member(body, "error"), Member(body, "error_description"))
                            : "") +
                       ")");
  const auto seconds = [&](const char* name, double otherwise) {
    const auto found = body.find(name);
    const double given =
        found != body.end() && found->is_number() ? found->get<double>() : otherwise;
    return FromSeconds(std::clamp(given, 1.0, kLongestSeconds));
  };
  DeviceLogin login{.device_code = Member(body, "device_code"),
                    .user_code = Words(Member(body, "user_code")),
                    .verification_uri = Words(Member(body, "verification_uri")),
                    .verification_uri_complete = Words(Member(body, "verification_uri_complete")),
                    .expires = seconds("expires_in", 600),
                    .interval = seconds("interval", 5)};
  if (login.device_code.empty() || login.user_code.empty() || login.verification_uri.empty())
    return Unavailable("the issuer's answer has no code for the device flow");
  return login;
}

Result<TokenAnswer> ParseTokenAnswer(const IssuerAnswer& answer) {
  const json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  TokenAnswer out;
  if (body.is_object() && answer.code == 200) {
    out.state = TokenState::kGranted;
    out.tokens = {Member(body, "id_token"), Member(body, "refresh_token")};
    return out;
  }
  const std::string error = body.is_object() ? Member(body, "error") : "";
  // 429 and 5xx pass; so does what is no answer of a token endpoint, such as a gateway's page.
  if (error.empty() || answer.code >= 500 || answer.code == 429)
    return Unavailable("the issuer answers with " + std::to_string(answer.code) +
                       (error.empty() ? "" : ", " + Words(error)));
  if (error == "authorization_pending") out.state = TokenState::kPending;
  if (error == "slow_down") out.state = TokenState::kSlowDown;
  out.why = ErrorWords(error, Member(body, "error_description"));
  return out;
}

}  // namespace muster
