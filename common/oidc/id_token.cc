#include "common/oidc/id_token.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "common/base/json.h"
#include "common/base/strings.h"
#include "common/base/wall_time.h"
#include "common/oidc/one_line.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxAudiences = 16;
constexpr double kLastSecond = 1e11;  // of a time that is taken for one

Status Refused(const std::string& why) {
  return Unauthenticated("the ID token is refused: " + why);
}

std::int64_t Millis(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// What a token says of itself, for messages.
std::string Shown(const std::string& text) {
  return "'" + WithoutControls(text.substr(0, 256)) + "'";
}

struct Parts {
  json header;
  json claims;
  std::string_view signed_text;
  std::string signature;
};

Result<json> ObjectOf(std::string_view part, const std::string& what) {
  const Result<std::string> text = FromBase64Url(part);
  if (!text.ok()) return Refused("its " + what + " is no base64url");
  json object = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Refused("its " + what + " is no JSON object");
  return object;
}

Result<Parts> Split(std::string_view token) {
  if (token.size() > kMaxTokenBytes) return Refused("it has more than 12 KiB");
  const std::size_t first = token.find('.');
  const std::size_t second = first == token.npos ? token.npos : token.find('.', first + 1);
  if (second == token.npos || token.find('.', second + 1) != token.npos)
    return Refused("it has not the three parts of a signed token");
  Parts parts;
  MUSTER_ASSIGN_OR_RETURN(parts.header, ObjectOf(token.substr(0, first), "header"));
  MUSTER_ASSIGN_OR_RETURN(parts.claims,
                          ObjectOf(token.substr(first + 1, second - first - 1), "content"));
  parts.signed_text = token.substr(0, second);
  Result<std::string> signature = FromBase64Url(token.substr(second + 1));
  if (!signature.ok()) return Refused("its signature is no base64url");
  parts.signature = *std::move(signature);
  return parts;
}

// Nothing: it is missing. An error: it is there and no text.
Result<std::optional<std::string>> Text(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::optional<std::string>();
  if (!found->is_string()) return Refused(std::string("its '") + name + "' is no text");
  return std::optional<std::string>(found->get<std::string>());
}

Result<std::optional<std::int64_t>> Time(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return std::optional<std::int64_t>();
  const double seconds = found->is_number() ? found->get<double>() : -1;
  if (!(seconds >= 0 && seconds <= kLastSecond))
    return Refused(std::string("its '") + name + "' is no time");
  return std::optional<std::int64_t>(static_cast<std::int64_t>(std::floor(seconds * 1000)));
}

Status CheckSignature(const Parts& parts, const JwkSet& keys) {
  MUSTER_ASSIGN_OR_RETURN(const auto algorithm, Text(parts.header, "alg"));
  if (algorithm != "RS256" && algorithm != "ES256")
    return Refused("it is signed by " + Shown(algorithm.value_or("nothing")) +
                   "; RS256 and ES256 are accepted");
  if (parts.header.contains("crit")) return Refused("its header demands extensions");
  MUSTER_ASSIGN_OR_RETURN(const auto type, Text(parts.header, "typ"));
  if (type && AsciiLower(*type) != "jwt")
    return Refused("it is a token of another kind, " + Shown(*type));
  MUSTER_ASSIGN_OR_RETURN(const auto kid, Text(parts.header, "kid"));
  const PublicKey::Kind kind =
      algorithm == "RS256" ? PublicKey::Kind::kRsa : PublicKey::Kind::kP256;
  const PublicKey* key = keys.Find(kid.value_or(""), kind);
  if (key == nullptr)
    return NotFound("the ID token is refused: the issuer has no " + *algorithm + " key " +
                    (kid ? Shown(*kid) : "that is the only one"));
  if (!key->HasSigned(parts.signed_text, parts.signature))
    return Refused("its signature is not the issuer's");
  return OkStatus();
}

Result<std::vector<std::string>> AudiencesOf(const json& claims) {
  const auto found = claims.find("aud");
  std::vector<std::string> audiences;
  if (found != claims.end() && found->is_string()) {
    audiences.push_back(found->get<std::string>());
  } else if (found != claims.end() && found->is_array() && found->size() <= kMaxAudiences) {
    for (const json& each : *found)
      if (each.is_string()) audiences.push_back(each.get<std::string>());
    if (audiences.size() != found->size()) audiences.clear();
  }
  if (audiences.empty()) return Refused("its 'aud' names no client");
  return audiences;
}

// For whom the token was made. Of several audiences `azp` says which one asked for it.
Status CheckAudience(const json& claims, const std::string& client_id) {
  MUSTER_ASSIGN_OR_RETURN(const auto audiences, AudiencesOf(claims));
  if (std::find(audiences.begin(), audiences.end(), client_id) == audiences.end())
    return Refused("it is for client " + Shown(audiences.front()) + ", not for '" + client_id +
                   "'");
  MUSTER_ASSIGN_OR_RETURN(const auto asked_by, Text(claims, "azp"));
  if (audiences.size() > 1 && !asked_by)
    return Refused("it is for several clients and does not say which asked for it (azp)");
  if (asked_by && *asked_by != client_id)
    return Refused("client " + Shown(*asked_by) + " asked for it (azp), not '" + client_id + "'");
  return OkStatus();
}

Status CheckTimes(const json& claims, std::int64_t now_ms, IdClaims* out) {
  const std::int64_t skew = Millis(kTokenSkew);
  MUSTER_ASSIGN_OR_RETURN(const auto expires, Time(claims, "exp"));
  MUSTER_ASSIGN_OR_RETURN(const auto issued, Time(claims, "iat"));
  MUSTER_ASSIGN_OR_RETURN(const auto not_before, Time(claims, "nbf"));
  if (!expires || !issued)
    return Refused("it does not say when it was made (iat), and until when (exp) it is good");
  if (now_ms >= *expires + skew) return Refused("it expired at " + UtcTime(*expires));
  if (now_ms < *issued - skew)
    return Refused("it was made at " + UtcTime(*issued) + ", which is later than the clock here");
  if (not_before && now_ms < *not_before - skew)
    return Refused("it is not valid before " + UtcTime(*not_before));
  if (now_ms >= *issued + Millis(kTokenMaxAge) + skew)
    return Refused("it was made at " + UtcTime(*issued) + ", too long ago for a login");
  out->issued_ms = *issued;
  out->expires_ms = *expires;
  return OkStatus();
}

Result<std::string> SubjectOf(const json& claims) {
  MUSTER_ASSIGN_OR_RETURN(const auto subject, Text(claims, "sub"));
  const bool readable =
      subject && std::none_of(subject->begin(), subject->end(),
                              [](unsigned char c) { return c < ' ' || c == 0x7f; });
  if (!readable || subject->empty() || subject->size() > kMaxSubjectBytes)
    return Refused("its subject (sub) is not 1 to 255 characters");
  return *subject;
}

}  // namespace

Result<IdClaims> VerifyIdToken(std::string_view token, const JwkSet& keys,
                               const ExpectedToken& expected) {
  MUSTER_ASSIGN_OR_RETURN(const Parts parts, Split(token));
  MUSTER_RETURN_IF_ERROR(CheckSignature(parts, keys));
  MUSTER_ASSIGN_OR_RETURN(const auto issuer, Text(parts.claims, "iss"));
  if (issuer != expected.issuer)
    return Refused("it is of the issuer " + Shown(issuer.value_or("")) + ", not of " +
                   expected.issuer);
  MUSTER_RETURN_IF_ERROR(CheckAudience(parts.claims, expected.client_id));
  IdClaims claims;
  MUSTER_RETURN_IF_ERROR(CheckTimes(parts.claims, expected.now_ms, &claims));
  MUSTER_ASSIGN_OR_RETURN(const auto nonce, Text(parts.claims, "nonce"));
  if (nonce && *nonce != expected.nonce) return Refused("it was made for another login (nonce)");
  claims.has_nonce = nonce.has_value();
  MUSTER_ASSIGN_OR_RETURN(claims.subject, SubjectOf(parts.claims));
  return claims;
}

}  // namespace muster
