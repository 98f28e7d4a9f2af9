#include "common/security/secret_keys.h"

#include <algorithm>
#include <sstream>

#include "common/security/encoding.h"
#include "common/security/private_files.h"
#include "common/security/sealed_box.h"

namespace muster {
namespace {

constexpr std::size_t kKeyIdBytes = 8;

Result<std::pair<std::string, std::string>> NewKey() {
  MUSTER_ASSIGN_OR_RETURN(const std::string id, RandomBytes(kKeyIdBytes));
  MUSTER_ASSIGN_OR_RETURN(std::string key, RandomBytes(kSealingKeyBytes));
  return std::pair{ToHex(id), std::move(key)};
}

}  // namespace

Result<SecretKeys> SecretKeys::Load(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadPrivateFile(path, Privacy::kSecret));
  SecretKeys keys;
  std::istringstream lines(text);
  for (std::string id, encoded; lines >> id >> encoded;) {
    Result<std::string> key = FromBase64Url(encoded);
    if (!key.ok() || key->size() != kSealingKeyBytes)
      return DataLoss(path + " is damaged: a line is \"ID KEY\"; restore it from a copy");
    keys.keys_.emplace_back(id, *std::move(key));
  }
  if (keys.keys_.empty()) return DataLoss(path + " has no key; restore it from a copy");
  return keys;
}

Result<SecretKeys> SecretKeys::LoadOrMake(const std::string& path) {
  Result<SecretKeys> keys = Load(path);
  if (keys.status().code() != StatusCode::kNotFound) return keys;
  SecretKeys made;
  MUSTER_RETURN_IF_ERROR(made.AddKey(path));
  return made;
}

Status SecretKeys::AddKey(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(auto key, NewKey());
  SecretKeys next = *this;
  next.keys_.insert(next.keys_.begin(), std::move(key));
  MUSTER_RETURN_IF_ERROR(next.Write(path));
  *this = std::move(next);
  return OkStatus();
}

Status SecretKeys::DropOldKeys(const std::string& path, const std::set<std::string>& needed) {
  SecretKeys next = *this;
  next.keys_.erase(
      std::remove_if(next.keys_.begin() + 1, next.keys_.end(),
                     [&needed](const auto& key) { return !needed.contains(key.first); }),
      next.keys_.end());
  MUSTER_RETURN_IF_ERROR(next.Write(path));
  *this = std::move(next);
  return OkStatus();
}

const std::string* SecretKeys::Find(std::string_view id) const {
  const auto found = std::ranges::find_if(keys_, [&](const auto& key) { return key.first == id; });
  return found == keys_.end() ? nullptr : &found->second;
}

Status SecretKeys::Write(const std::string& path) const {
  std::string text;
  for (const auto& [id, key] : keys_)
    text.append(id).append(" ").append(ToBase64Url(key)).append("\n");
  return WritePrivateFile(path, text, Privacy::kSecret);
}

}  // namespace muster
