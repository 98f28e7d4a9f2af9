#include "common/security/join_token_register.h"

#include <algorithm>
#include <filesystem>

#include "common/base/json.h"
#include "common/base/wall_time.h"
#include "common/security/encoding.h"
#include "common/security/private_files.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr std::size_t kIdBytes = 8;
constexpr std::size_t kSecretBytes = 32;
// With their certificates they fit into what is read of a private file.
constexpr std::size_t kMaxTokens = 40'000;
// For that long a late node hears why it is refused.
constexpr std::int64_t kRememberedMs = 7LL * 24 * 3600 * 1000;

std::int64_t Millis(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

json ToJson(const JoinTokenRecord& record) {
  return {{"id", record.id},
          {"secret_sha256", record.secret_sha256},
          {"node", record.node},
          {"made_ms", record.made_ms},
          {"expires_ms", record.expires_ms},
          {"redeemed_ms", record.redeemed_ms},
          {"redeemed_by", record.redeemed_by},
          {"redeemed_key", record.redeemed_key},
          {"certificate", record.certificate_pem}};
}

Result<JoinTokenRecord> FromJson(const json& value) {
  for (const char* key : {"id", "secret_sha256", "node", "redeemed_by"})
    if (!value.is_object() || !value.contains(key) || !value[key].is_string())
      return DataLoss(std::string("has no text '") + key + "'");
  for (const char* key : {"made_ms", "expires_ms", "redeemed_ms"})
    if (!value.contains(key) || !value[key].is_number_integer())
      return DataLoss(std::string("has no number '") + key + "'");
  JoinTokenRecord record;
  record.id = value["id"];
  record.secret_sha256 = value["secret_sha256"];
  record.node = value["node"];
  record.made_ms = value["made_ms"];
  record.expires_ms = value["expires_ms"];
  record.redeemed_ms = value["redeemed_ms"];
  record.redeemed_by = value["redeemed_by"];
  // Books of before have neither.
  for (const auto& [key, to] : {std::pair{"redeemed_key", &record.redeemed_key},
                                std::pair{"certificate", &record.certificate_pem}}) {
    if (!value.contains(key)) continue;
    if (!value[key].is_string()) return DataLoss(std::string("has no text '") + key + "'");
    *to = value[key];
  }
  return record;
}

// Whether the claim repeats the one that has used the token up.
bool IsRepeated(const JoinTokenRecord& record, const JoinClaim& claim) {
  return record.redeemed_ms != 0 && record.redeemed_by == claim.node &&
         record.redeemed_key == claim.key && !record.certificate_pem.empty();
}

// Why a token whose secret is right is refused.
Status CheckGood(const JoinTokenRecord& record, const JoinClaim& claim, std::int64_t now_ms) {
  constexpr char kNext[] = "; make another with muster certs join-token";
  const std::string& node = claim.node;
  if (record.redeemed_ms != 0 && !IsRepeated(record, claim))
    return PermissionDenied("the join token was used by node " + record.redeemed_by + " at " +
                            UtcTime(record.redeemed_ms) + kNext);
  if (now_ms >= record.expires_ms)
    return PermissionDenied("the join token expired at " + UtcTime(record.expires_ms) + kNext);
  if (!record.node.empty() && record.node != node)
    return PermissionDenied("the join token is for node " + record.node + ", not for " + node +
                            kNext);
  return OkStatus();
}

void Forget(std::vector<JoinTokenRecord>& records, std::int64_t now_ms) {
  std::erase_if(records, [&](const JoinTokenRecord& record) {
    return record.expires_ms + kRememberedMs <= now_ms;
  });
  for (JoinTokenRecord& record : records)
    if (record.expires_ms <= now_ms) record.certificate_pem.clear();
}

}  // namespace

JoinTokenRegister::JoinTokenRegister(std::string path, std::string cluster)
    : path_(std::move(path)), cluster_(std::move(cluster)) {}

Result<std::vector<JoinTokenRecord>> JoinTokenRegister::Read() const {
  const auto text = ReadPrivateFile(path_, Privacy::kSecret);
  std::vector<JoinTokenRecord> records;
  if (text.status().code() == StatusCode::kNotFound) return records;
  if (!text.ok()) return text.status();
  const json book = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!book.is_object() || !book.contains("tokens") || !book["tokens"].is_array())
    return DataLoss(path_ + " is not {\"tokens\": [...]}; remove it, and make new join tokens");
  for (const json& value : book["tokens"]) {
    auto record = FromJson(value);
    if (!record.ok())
      return DataLoss(path_ + ": tokens[" + std::to_string(records.size()) + "] " +
                      record.status().message() + "; remove it, and make new join tokens");
    records.push_back(*std::move(record));
  }
  return records;
}

Status JoinTokenRegister::Write(const std::vector<JoinTokenRecord>& records) const {
  json tokens = json::array();
  for (const JoinTokenRecord& record : records) tokens.push_back(ToJson(record));
  return WritePrivateFile(path_, json{{"tokens", tokens}}.dump(1) + "\n", Privacy::kSecret);
}

Result<UniqueFd> JoinTokenRegister::Lock() const {
  return LockDirectory(std::filesystem::path(path_).parent_path().string());
}

Result<JoinToken> JoinTokenRegister::Make(const std::string& node, Duration lifetime,
                                          const std::string& ca_pem, std::int64_t now_ms) const {
  if (!node.empty()) MUSTER_RETURN_IF_ERROR(CheckName("node name", node));
  if (lifetime < std::chrono::seconds(1) || lifetime > kMaxJoinTokenLifetime)
    return InvalidArgument("a join token expires after a second at least and a week at most");
  JoinToken token{.expires_ms = now_ms + Millis(lifetime), .cluster = cluster_, .ca_pem = ca_pem};
  MUSTER_ASSIGN_OR_RETURN(const std::string id, RandomBytes(kIdBytes));
  token.id = ToHex(id);
  MUSTER_ASSIGN_OR_RETURN(token.secret, RandomBytes(kSecretBytes));

  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());
  MUSTER_ASSIGN_OR_RETURN(auto records, Read());
  Forget(records, now_ms);
  if (records.size() >= kMaxTokens)
    return ResourceExhausted("there are " + std::to_string(records.size()) +
                             " join tokens already; use those, or wait until some expire");
  records.push_back({.id = token.id,
                     .secret_sha256 = ToHex(Sha256(token.secret)),
                     .node = node,
                     .made_ms = now_ms,
                     .expires_ms = token.expires_ms});
  MUSTER_RETURN_IF_ERROR(Write(records));
  return token;
}

Result<Redemption> JoinTokenRegister::RedeemOne(
    std::vector<JoinTokenRecord>& records, const JoinClaim& claim, std::int64_t now_ms,
    const std::function<Result<std::string>(const Redemption&)>& admit) const {
  MUSTER_RETURN_IF_ERROR(CheckName("node name", claim.node));
  const auto record = std::find_if(records.begin(), records.end(),
                                   [&](const JoinTokenRecord& r) { return r.id == claim.id; });
  // The same answer for both: ids are no secrets, and a client that guesses learns nothing.
  if (record == records.end() ||
      !EqualInConstantTime(record->secret_sha256, ToHex(Sha256(claim.secret))))
    return Unauthenticated(
        "the join token is not one of this cluster's; make one with muster certs join-token");
  MUSTER_RETURN_IF_ERROR(CheckGood(*record, claim, now_ms));
  Redemption redemption{
      .identity = {.role = Role::kNode, .name = claim.node, .cluster = cluster_},
      .for_any_node = record->node.empty(),
      .made_ms = record->made_ms,
      .certificate_pem = IsRepeated(*record, claim) ? record->certificate_pem : ""};
  MUSTER_ASSIGN_OR_RETURN(redemption.certificate_pem, admit(redemption));
  if (record->redeemed_ms == 0) record->redeemed_ms = now_ms;
  record->redeemed_by = claim.node;
  record->redeemed_key = claim.key;
  record->certificate_pem = redemption.certificate_pem;
  return redemption;
}

std::vector<Result<Redemption>> JoinTokenRegister::Redeem(std::span<const JoinClaim> claims,
                                                          std::int64_t now_ms,
                                                          const Admit& admit) const {
  std::vector<Result<Redemption>> outcomes;
  if (claims.empty()) return outcomes;
  const auto redeem = [&]() -> Status {
    MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());
    MUSTER_ASSIGN_OR_RETURN(auto records, Read());
    bool changed = false;
    for (std::size_t i = 0; i < claims.size(); ++i) {
      bool first = false;
      outcomes.push_back(RedeemOne(records, claims[i], now_ms, [&](const Redemption& redemption) {
        first = redemption.certificate_pem.empty();
        return admit(i, redemption);
      }));
      changed = changed || (first && outcomes.back().ok());
    }
    if (!changed) return OkStatus();
    Forget(records, now_ms);
    return Write(records);
  };
  if (const Status status = redeem(); !status.ok()) {
    // What is not in the file has not happened.
    for (Result<Redemption>& outcome : outcomes)
      if (outcome.ok()) outcome = status;
    outcomes.resize(claims.size(), status);
  }
  return outcomes;
}

Status JoinTokenRegister::Withdraw(const std::string& id) const {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, Lock());
  MUSTER_ASSIGN_OR_RETURN(auto records, Read());
  const auto found =
      std::erase_if(records, [&](const JoinTokenRecord& record) { return record.id == id; });
  if (found == 0)
    return NotFound("there is no join token " + id + "; muster certs list shows those there are");
  return Write(records);
}

Result<std::vector<JoinTokenRecord>> JoinTokenRegister::List() const { return Read(); }

}  // namespace muster
