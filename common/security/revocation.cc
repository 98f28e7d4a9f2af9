#include "common/security/revocation.h"

#include <algorithm>
#include <filesystem>

#include "common/base/json.h"
#include "common/base/wall_time.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxReasonBytes = 512;

ordered_json ToJson(const Revocation& entry) {
  ordered_json value;
  if (!entry.serial.empty()) value["serial"] = entry.serial;
  if (!entry.identity.empty()) value["identity"] = entry.identity;
  value["revoked_ms"] = entry.revoked_ms;
  value["reason"] = entry.reason;
  if (entry.readmitted_ms != 0) value["readmitted_ms"] = entry.readmitted_ms;
  return value;
}

Status TakeText(const ordered_json& value, const char* key, std::string* text) {
  if (!value.contains(key)) return OkStatus();
  if (!value[key].is_string()) return DataLoss(std::string("has a '") + key + "' that is no text");
  *text = value[key];
  return OkStatus();
}

Status TakeTime(const ordered_json& value, const char* key, std::int64_t* time) {
  if (!value.contains(key)) return OkStatus();
  if (!value[key].is_number_integer())
    return DataLoss(std::string("has a '") + key + "' that is no whole number");
  *time = value[key];
  return OkStatus();
}

Status CheckEntry(const Revocation& entry) {
  if (entry.serial.empty() && entry.identity.empty())
    return InvalidArgument("names neither a serial nor an identity");
  if (!entry.serial.empty() && !IsHex(entry.serial, 32))
    return InvalidArgument("has a serial that is not 32 lower-case hexadecimal digits");
  if (!entry.identity.empty()) MUSTER_RETURN_IF_ERROR(ParseIdentityUri(entry.identity).status());
  if (entry.revoked_ms <= 0) return InvalidArgument("has no 'revoked_ms'");
  return OkStatus();
}

Result<Revocation> FromJson(const ordered_json& value) {
  if (!value.is_object()) return DataLoss("is no object");
  Revocation entry;
  MUSTER_RETURN_IF_ERROR(TakeText(value, "serial", &entry.serial));
  MUSTER_RETURN_IF_ERROR(TakeText(value, "identity", &entry.identity));
  MUSTER_RETURN_IF_ERROR(TakeText(value, "reason", &entry.reason));
  MUSTER_RETURN_IF_ERROR(TakeTime(value, "revoked_ms", &entry.revoked_ms));
  MUSTER_RETURN_IF_ERROR(TakeTime(value, "readmitted_ms", &entry.readmitted_ms));
  MUSTER_RETURN_IF_ERROR(CheckEntry(entry));
  return entry;
}

Status Write(const std::string& path, const std::vector<Revocation>& entries) {
  ordered_json list = ordered_json::array();
  for (const Revocation& entry : entries) list.push_back(ToJson(entry));
  const ordered_json whole = {{"revoked", list}};
  return WritePrivateFile(path, whole.dump(1) + "\n", Privacy::kTrusted);
}

Result<UniqueFd> LockFor(const std::string& path) {
  return LockDirectory(std::filesystem::path(path).parent_path().string());
}

// Revoked as such, and no serial of it.
bool IsOf(const Revocation& entry, const std::string& uri) {
  return entry.serial.empty() && entry.identity == uri;
}

// Certificates have whole seconds: what was issued within the second of the revocation is refused.
std::int64_t Second(std::int64_t ms) { return ms / 1000; }

bool Covers(const Revocation& entry, const CertificateInfo& certificate) {
  if (!entry.serial.empty()) return entry.serial == certificate.serial;
  return entry.readmitted_ms == 0 || Second(certificate.issued_ms) <= Second(entry.revoked_ms);
}

}  // namespace

Status RevocationList::Check(const CertificateInfo& certificate) const {
  const std::string uri = IdentityUri(certificate.identity);
  for (const Revocation& entry : entries_) {
    if (entry.serial.empty() && entry.identity != uri) continue;
    if (!Covers(entry, certificate)) continue;
    return Unauthenticated("the certificate of " + uri + " (serial " + certificate.serial +
                           ") was revoked at " + UtcTime(entry.revoked_ms) +
                           (entry.reason.empty() ? "" : ": " + entry.reason));
  }
  return OkStatus();
}

const Revocation* RevocationList::Find(const Identity& identity) const {
  const std::string uri = IdentityUri(identity);
  for (const Revocation& entry : entries_)
    if (IsOf(entry, uri) && entry.readmitted_ms == 0) return &entry;
  return nullptr;
}

Result<RevocationList> LoadRevocations(const std::string& path) {
  const auto text = ReadPrivateFile(path, Privacy::kTrusted);
  if (text.status().code() == StatusCode::kNotFound) return RevocationList();
  if (!text.ok()) return text.status();
  const auto json = ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("revoked") || !json["revoked"].is_array())
    return DataLoss(path + " is not {\"revoked\": [...]}; put it back from a backup");
  std::vector<Revocation> entries;
  for (const auto& value : json["revoked"]) {
    auto entry = FromJson(value);
    if (!entry.ok())
      return DataLoss(path + ": revoked[" + std::to_string(entries.size()) + "] " +
                      entry.status().message() + "; correct the entry");
    entries.push_back(*std::move(entry));
  }
  return RevocationList(std::move(entries));
}

Status Revoke(const std::string& path, const Revocation& entry) {
  const Status valid = CheckEntry(entry);
  if (!valid.ok()) return valid.WithContext("the revocation");
  if (entry.reason.size() > kMaxReasonBytes)
    return InvalidArgument("a revocation's reason has 512 bytes at most");
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockFor(path));
  MUSTER_ASSIGN_OR_RETURN(const RevocationList list, LoadRevocations(path));
  std::vector<Revocation> entries = list.entries();
  const auto same = [&](const Revocation& old) {
    return old.serial == entry.serial && (!entry.serial.empty() || old.identity == entry.identity);
  };
  const auto old = std::find_if(entries.begin(), entries.end(), same);
  if (old == entries.end()) {
    entries.push_back(entry);
  } else if (old->readmitted_ms != 0) {
    *old = entry;
  } else {
    return OkStatus();
  }
  return Write(path, entries);
}

Status Readmit(const std::string& path, const Identity& identity, std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockFor(path));
  MUSTER_ASSIGN_OR_RETURN(const RevocationList list, LoadRevocations(path));
  std::vector<Revocation> entries = list.entries();
  const std::string uri = IdentityUri(identity);
  for (Revocation& entry : entries) {
    if (!IsOf(entry, uri) || entry.readmitted_ms != 0) continue;
    if (Second(now_ms) <= Second(entry.revoked_ms))
      return Unavailable(uri + " was revoked just now; try again in a second");
    entry.readmitted_ms = now_ms;
    return Write(path, entries);
  }
  return OkStatus();
}

Result<bool> RevocationFile::Refresh() {
  const FileStamp stamp = StampOf(path_);
  if (stamp == stamp_) return false;
  MUSTER_ASSIGN_OR_RETURN(list_, LoadRevocations(path_));
  stamp_ = stamp;
  return true;
}

}  // namespace muster
