// PublicKey: another party's public key, by its numbers, and whether it has signed a text. For
// JSON Web Signatures (RFC 7518): RS256 of RSA keys, ES256 of keys on P-256, nothing else.
//
// A value; any thread.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "common/base/result.h"

struct evp_pkey_st;  // OpenSSL's EVP_PKEY

namespace muster {

class PublicKey {
 public:
  enum class Kind { kRsa, kP256 };

  // The numbers in big-endian order. kInvalidArgument: fewer than 2048 or more than 8192 bits, an
  // exponent that is even or has more than 64 bits.
  static Result<PublicKey> Rsa(std::string_view modulus, std::string_view exponent);
  // kInvalidArgument: not a point of the curve.
  static Result<PublicKey> P256(std::string_view x, std::string_view y);

  Kind kind() const { return kind_; }
  // By RSASSA-PKCS1-v1_5 with SHA-256, or by ECDSA with SHA-256, whose signature is r and s of 32
  // bytes each.
  bool HasSigned(std::string_view text, std::string_view signature) const;

 private:
  PublicKey(Kind kind, std::shared_ptr<evp_pkey_st> key) : kind_(kind), key_(std::move(key)) {}

  Kind kind_;
  std::shared_ptr<evp_pkey_st> key_;
};

}  // namespace muster
