#include "common/oidc/jwk_set.h"

#include <algorithm>

#include "common/base/json.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxKidBytes = 256;

// "" where the member is missing or no text.
std::string Text(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A member that restricts what the key is for must allow signatures.
bool IsForSignatures(const json& key, const char* algorithm) {
  if (key.contains("use") && Text(key, "use") != "sig") return false;
  if (key.contains("alg") && Text(key, "alg") != algorithm) return false;
  const auto operations = key.find("key_ops");
  if (operations == key.end()) return true;
  return operations->is_array() &&
         std::find(operations->begin(), operations->end(), json("verify")) != operations->end();
}

Result<PublicKey> Read(const json& key) {
  const auto number = [&](const char* name) {
    const std::string text = Text(key, name);
    return text.empty() ? Result<std::string>(InvalidArgument("a number is missing"))
                        : FromBase64Url(text);
  };
  if (Text(key, "kty") == "RSA" && IsForSignatures(key, "RS256")) {
    MUSTER_ASSIGN_OR_RETURN(const std::string modulus, number("n"));
    MUSTER_ASSIGN_OR_RETURN(const std::string exponent, number("e"));
    return PublicKey::Rsa(modulus, exponent);
  }
  if (Text(key, "kty") == "EC" && Text(key, "crv") == "P-256" && IsForSignatures(key, "ES256")) {
    MUSTER_ASSIGN_OR_RETURN(const std::string x, number("x"));
    MUSTER_ASSIGN_OR_RETURN(const std::string y, number("y"));
    return PublicKey::P256(x, y);
  }
  return InvalidArgument("is of another kind");
}

}  // namespace

Result<JwkSet> JwkSet::Parse(std::string_view text) {
  const json document = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto keys = document.find("keys");
  if (!document.is_object() || keys == document.end() || !keys->is_array())
    return InvalidArgument("it is no set of keys: {\"keys\": [...]}");
  if (keys->size() > kMaxKeys)
    return InvalidArgument("it has more than " + std::to_string(kMaxKeys) + " keys");
  JwkSet set;
  for (const json& each : *keys) {
    if (!each.is_object()) continue;
    std::string kid = Text(each, "kid");
    Result<PublicKey> key = Read(each);
    if (key.ok() && kid.size() <= kMaxKidBytes)
      set.keys_.push_back({std::move(kid), *std::move(key)});
  }
  return set;
}

const PublicKey* JwkSet::Find(std::string_view kid, PublicKey::Kind kind) const {
  const PublicKey* found = nullptr;
  for (const Named& each : keys_) {
    if (each.key.kind() != kind) continue;
    if (kid.empty() && found != nullptr) return nullptr;
    if (kid.empty() || each.kid == kid) found = &each.key;
    if (!kid.empty() && found != nullptr) return found;
  }
  return found;
}

}  // namespace muster
