#include "common/audit/audit_chain.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/text.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kHashDigits = 64;
constexpr std::string_view kHashKey = ",\"hash\":\"";
// ,"hash":"…"}
constexpr std::size_t kHashTail = kHashKey.size() + kHashDigits + 2;

std::string HashOf(std::string_view text) { return ToHex(Sha256(text)); }

Json ToJson(const AuditEntry& entry, const std::string& previous) {
  const auto text = [](const std::string& value) { return ValidUtf8(value); };
  return {{"seq", entry.seq},
          {"unix_ms", entry.unix_ms},
          {"actor", text(entry.actor)},
          {"as_user", text(entry.as_user)},
          {"peer", text(entry.peer)},
          {"request", text(entry.request)},
          {"operation", text(entry.operation)},
          {"object", text(entry.object)},
          {"outcome", text(entry.outcome)},
          {"detail", text(entry.detail)},
          {"previous", previous}};
}

Status Broken(std::uint64_t seq, const std::string& what) {
  return DataLoss("audit entry " + std::to_string(seq) + ": " + what);
}

// Cuts the line into what was sealed and its hash; believed or not.
Result<AuditLine> Parse(std::string_view line, std::string* sealed) {
  const Status no_line = DataLoss("not a line of an audit trail");
  if (line.size() < kHashTail) return no_line;
  const std::string_view tail = line.substr(line.size() - kHashTail);
  if (!tail.starts_with(kHashKey) || !tail.ends_with("\"}")) return no_line;
  AuditLine out;
  out.hash = tail.substr(kHashKey.size(), kHashDigits);
  *sealed = std::string(line.substr(0, line.size() - kHashTail)) + "}";
  try {
    const Json json = Json::parse(*sealed);
    out.entry = {.seq = json.at("seq").get<std::uint64_t>(),
                 .unix_ms = json.at("unix_ms").get<std::int64_t>(),
                 .actor = json.at("actor").get<std::string>(),
                 .as_user = json.at("as_user").get<std::string>(),
                 .peer = json.at("peer").get<std::string>(),
                 .request = json.at("request").get<std::string>(),
                 .operation = json.at("operation").get<std::string>(),
                 .object = json.at("object").get<std::string>(),
                 .outcome = json.at("outcome").get<std::string>(),
                 .detail = json.at("detail").get<std::string>()};
    out.previous = json.at("previous").get<std::string>();
  } catch (const nlohmann::json::exception&) {
    return no_line;
  }
  return out;
}

}  // namespace

std::string SealAuditEntry(AuditEntry entry, AuditHead* head) {
  entry.seq = head->seq + 1;
  std::string line = ToJson(entry, head->hash).dump();
  *head = {entry.seq, HashOf(line)};
  line.pop_back();
  return line.append(kHashKey).append(head->hash).append("\"}");
}

Result<AuditLine> ReadAuditLine(std::string_view line) {
  std::string sealed;
  MUSTER_ASSIGN_OR_RETURN(AuditLine out, Parse(line, &sealed));
  if (HashOf(sealed) != out.hash)
    return Broken(out.entry.seq, "was changed: its hash is not the one that it was written with");
  return out;
}

Result<AuditHead> AuditHeadOf(std::string_view line) {
  std::string sealed;
  MUSTER_ASSIGN_OR_RETURN(const AuditLine read, Parse(line, &sealed));
  return read.head();
}

Status AuditVerifier::Add(std::string_view text) {
  const std::uint64_t expected = head_.seq + 1;
  const Result<AuditLine> line = ReadAuditLine(text);
  if (!line.ok())
    return head_.seq == 0 ? line.status()
                          : line.status().WithContext("after entry " + std::to_string(head_.seq));
  const AuditHead here = line->head();
  if (first_.seq == 0) {
    first_ = here;
    if (kept_.seq > 0 && here.seq > kept_.seq + 1)
      return Broken(kept_.seq,
                    "is missing: the trail begins with entry " + std::to_string(here.seq));
    // The head may be that of the entry before the first one.
    if (here.seq == kept_.seq + 1) met_kept_ = line->previous == kept_.hash;
  } else if (here.seq != expected) {
    return Broken(expected, "is missing: entry " + std::to_string(here.seq) + " follows entry " +
                                std::to_string(head_.seq));
  } else if (line->previous != head_.hash) {
    return Broken(here.seq,
                  "does not follow the entry before it: one of the two is of another "
                  "trail");
  }
  head_ = here;
  if (here.seq == kept_.seq) {
    met_kept_ = here.hash == kept_.hash;
    if (!met_kept_) return Broken(here.seq, "is another one than at the time of the kept head");
  }
  return OkStatus();
}

Status AuditVerifier::End() const {
  if (kept_.seq == 0 || met_kept_) return OkStatus();
  if (head_.seq < kept_.seq)
    return Broken(kept_.seq, "is missing: the trail ends with entry " + std::to_string(head_.seq));
  return Broken(kept_.seq, "is another one than at the time of the kept head");
}

}  // namespace muster
