#include "coordinator/service/secret_vault.h"

#include "common/security/encoding.h"
#include "common/security/sealed_box.h"

namespace muster {

Status SecretVault::MakeKeys() {
  if (keys_) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(keys_, SecretKeys::LoadOrMake(path_));
  return OkStatus();
}

Result<SecretKeys*> SecretVault::Keys() {
  if (keys_) return &*keys_;
  auto loaded = SecretKeys::Load(path_);
  if (loaded.status().code() == StatusCode::kNotFound)
    return FailedPrecondition("the keys of the secrets, " + path_ +
                              ", are not there; restore the file from a copy");
  if (!loaded.ok()) return loaded.status();
  keys_ = *std::move(loaded);
  return &*keys_;
}

// No name has a zero byte.
std::string SecretVault::ContextOf(const SecretName& secret, std::string_view what) const {
  std::string context = "muster secret";
  for (const std::string_view part :
       {what, std::string_view(cluster_), std::string_view(secret.owner),
        std::string_view(secret.queue), std::string_view(secret.name)})
    context.append(1, '\0').append(part);
  return context;
}

Result<SecretRecord> SecretVault::Close(const SecretName& secret, std::string_view value) {
  MUSTER_ASSIGN_OR_RETURN(SecretKeys * keys, Keys());
  MUSTER_ASSIGN_OR_RETURN(const std::string own, RandomBytes(kSealingKeyBytes));
  MUSTER_ASSIGN_OR_RETURN(const std::string sealed, Seal(own, value, ContextOf(secret, "value")));
  MUSTER_ASSIGN_OR_RETURN(const std::string own_sealed, Seal(*keys->Find(keys->newest_id()), own,
                                                             ContextOf(secret, keys->newest_id())));
  return SecretRecord{.secret = secret,
                      .key_id = keys->newest_id(),
                      .own_key = ToBase64Url(own_sealed),
                      .value = ToBase64Url(sealed)};
}

Result<std::string> SecretVault::OwnKeyOf(const SecretRecord& record) {
  MUSTER_ASSIGN_OR_RETURN(SecretKeys * keys, Keys());
  const std::string* key = keys->Find(record.key_id);
  if (key == nullptr)
    return FailedPrecondition(path_ + " has no key " + record.key_id + ", with which secret " +
                              record.secret.name + " was encrypted; restore it from a copy");
  MUSTER_ASSIGN_OR_RETURN(const std::string sealed, FromBase64Url(record.own_key));
  auto own = OpenSealed(*key, sealed, ContextOf(record.secret, record.key_id));
  if (own.ok() && own->size() != kSealingKeyBytes) return DataLoss("it has no key of its own");
  if (!own.ok()) return own.status().WithContext("secret " + record.secret.name);
  return own;
}

Result<std::string> SecretVault::Open(const SecretRecord& record) {
  MUSTER_ASSIGN_OR_RETURN(const std::string own, OwnKeyOf(record));
  MUSTER_ASSIGN_OR_RETURN(const std::string sealed, FromBase64Url(record.value));
  auto value = OpenSealed(own, sealed, ContextOf(record.secret, "value"));
  if (!value.ok()) return value.status().WithContext("secret " + record.secret.name);
  return value;
}

Result<SecretRecord> SecretVault::Rewrap(const SecretRecord& record) {
  MUSTER_ASSIGN_OR_RETURN(const std::string own, OwnKeyOf(record));
  MUSTER_ASSIGN_OR_RETURN(SecretKeys * keys, Keys());
  SecretRecord next = record;
  next.key_id = keys->newest_id();
  MUSTER_ASSIGN_OR_RETURN(const std::string sealed, Seal(*keys->Find(next.key_id), own,
                                                         ContextOf(record.secret, next.key_id)));
  next.own_key = ToBase64Url(sealed);
  return next;
}

Status SecretVault::AddKey() {
  MUSTER_ASSIGN_OR_RETURN(SecretKeys * keys, Keys());
  return keys->AddKey(path_);
}

Status SecretVault::DropOldKeys(const std::set<std::string>& needed) {
  MUSTER_ASSIGN_OR_RETURN(SecretKeys * keys, Keys());
  return keys->DropOldKeys(path_, needed);
}

}  // namespace muster
