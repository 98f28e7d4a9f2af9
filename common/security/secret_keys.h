// The keys that encrypt the keys of stored secrets (docs/secrets.md), in a file outside the store:
// a line "ID KEY" each (key: base64 without padding), 0600, the one in use first. Older ones stay
// until everything is encrypted anew.
//
// A value; any thread may read it. Functions on files block.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace muster {

class SecretKeys {
 public:
  // kNotFound: there is no such file. kDataLoss: it is damaged.
  static Result<SecretKeys> Load(const std::string& path);
  // A file with one new key, where there is none; then as Load.
  static Result<SecretKeys> LoadOrMake(const std::string& path);

  // Written durably before it counts.
  Status AddKey(const std::string& path);
  // All but the newest one and those of the names in `needed`.
  Status DropOldKeys(const std::string& path, const std::set<std::string>& needed);

  const std::string& newest_id() const { return keys_.front().first; }
  std::size_t size() const { return keys_.size(); }
  // nullptr: there is none of the name.
  const std::string* Find(std::string_view id) const;

 private:
  Status Write(const std::string& path) const;

  std::vector<std::pair<std::string, std::string>> keys_;  // never empty
};

}  // namespace muster
