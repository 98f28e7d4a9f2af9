// SecretVault: encrypts secrets before they are stored, and opens them. Each value has a key of its
// own, which is encrypted with the newest of secret_keys.h; both name owner, queue and secret, so
// that a record cannot stand for another one.
//
// Owned by the secret service; the loop's thread. Blocks for a small file: at the first use, and
// when the key is rotated.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/security/secret_keys.h"
#include "coordinator/domain/records.h"

namespace muster {

class SecretVault {
 public:
  // `path`: the file of keys.
  SecretVault(std::string path, std::string cluster)
      : path_(std::move(path)), cluster_(std::move(cluster)) {}

  // Makes the file where there is none: before the first secret alone, since without its file those
  // that are there cannot be read.
  Status MakeKeys();
  Result<SecretRecord> Close(const SecretName& secret, std::string_view value);
  // kFailedPrecondition: the file lacks its key. kDataLoss: the record was changed.
  Result<std::string> Open(const SecretRecord& record);

  // The record with its own key encrypted by the newest key.
  Result<SecretRecord> Rewrap(const SecretRecord& record);
  Status AddKey();
  // All but the newest one and those of the names in `needed`.
  Status DropOldKeys(const std::set<std::string>& needed);

 private:
  Result<SecretKeys*> Keys();
  Result<std::string> OwnKeyOf(const SecretRecord& record);
  std::string ContextOf(const SecretName& secret, std::string_view what) const;

  const std::string path_;
  const std::string cluster_;
  std::optional<SecretKeys> keys_;
};

}  // namespace muster
