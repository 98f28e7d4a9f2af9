// JwkSet: the keys by which an issuer signs (JSON Web Key Set, RFC 7517).
//
// Takes RSA keys of 2048 bits or more and keys on P-256, if they are for signatures. It leaves out
// all others, as issuers publish kinds for other purposes too. A value; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/security/public_key.h"

namespace muster {

class JwkSet {
 public:
  static constexpr std::size_t kMaxKeys = 64;

  JwkSet() = default;
  // kInvalidArgument for what is no set. One without a key of use is a set.
  static Result<JwkSet> Parse(std::string_view json);

  std::size_t size() const { return keys_.size(); }
  // The key of that name and kind; for "", where a token names none, the only one of the kind.
  // nullptr: there is none.
  const PublicKey* Find(std::string_view kid, PublicKey::Kind kind) const;

 private:
  struct Named {
    std::string kid;
    PublicKey key;
  };
  std::vector<Named> keys_;
};

}  // namespace muster
