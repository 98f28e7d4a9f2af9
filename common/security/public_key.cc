#include "common/security/public_key.h"

#include <openssl/core_names.h>
#include <openssl/ecdsa.h>
#include <openssl/param_build.h>

#include <algorithm>
#include <string>

#include "common/security/openssl_handles.h"

namespace muster {
namespace {

constexpr int kLeastRsaBits = 2048;
constexpr std::size_t kMostRsaBytes = 1024;
constexpr std::size_t kMostExponentBytes = 8;
constexpr std::size_t kCoordinateBytes = 32;

using ParamBuilderPtr = std::unique_ptr<OSSL_PARAM_BLD, OpenSslFree<OSSL_PARAM_BLD_free>>;
using ParamsPtr = std::unique_ptr<OSSL_PARAM, OpenSslFree<OSSL_PARAM_free>>;
using KeyContextPtr = std::unique_ptr<EVP_PKEY_CTX, OpenSslFree<EVP_PKEY_CTX_free>>;
using DigestContextPtr = std::unique_ptr<EVP_MD_CTX, OpenSslFree<EVP_MD_CTX_free>>;
using EcdsaSignaturePtr = std::unique_ptr<ECDSA_SIG, OpenSslFree<ECDSA_SIG_free>>;

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

BignumPtr Number(std::string_view bytes) {
  return BignumPtr(BN_bin2bn(Bytes(bytes), static_cast<int>(bytes.size()), nullptr));
}

// Issuers write numbers with a zero byte too many, or without those that they begin with.
std::string Coordinate(std::string_view number) {
  while (!number.empty() && number.front() == '\0') number.remove_prefix(1);
  const std::size_t missing = kCoordinateBytes - std::min(number.size(), kCoordinateBytes);
  return std::string(missing, '\0') + std::string(number);
}

// nullptr: OpenSSL finds it to be no key.
KeyPtr MakeKey(const char* type, OSSL_PARAM_BLD* builder) {
  const ParamsPtr params(OSSL_PARAM_BLD_to_param(builder));
  const KeyContextPtr context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  if (!params || !context || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, params.get()) != 1)
    return nullptr;
  KeyPtr key(made);
  const KeyContextPtr check(EVP_PKEY_CTX_new_from_pkey(nullptr, key.get(), nullptr));
  if (!check || EVP_PKEY_public_check(check.get()) != 1) return nullptr;
  return key;
}

// What OpenSSL verifies: the two numbers as DER. Empty: they are none.
std::string DerOfSignature(std::string_view signature) {
  if (signature.size() != 2 * kCoordinateBytes) return {};
  BignumPtr r = Number(signature.substr(0, kCoordinateBytes));
  BignumPtr s = Number(signature.substr(kCoordinateBytes));
  const EcdsaSignaturePtr both(ECDSA_SIG_new());
  if (!r || !s || !both || ECDSA_SIG_set0(both.get(), r.get(), s.get()) != 1) return {};
  (void)r.release();
  (void)s.release();
  unsigned char* der = nullptr;
  const int size = i2d_ECDSA_SIG(both.get(), &der);
  if (size <= 0) return {};
  std::string text(reinterpret_cast<const char*>(der), static_cast<std::size_t>(size));
  OPENSSL_free(der);
  return text;
}

}  // namespace

Result<PublicKey> PublicKey::Rsa(std::string_view modulus, std::string_view exponent) {
  const OpenSslErrors errors;
  if (modulus.size() > kMostRsaBytes || exponent.size() > kMostExponentBytes)
    return InvalidArgument("an RSA key has 8192 bits at most, and its exponent 64");
  const BignumPtr n = Number(modulus);
  const BignumPtr e = Number(exponent);
  if (!n || BN_num_bits(n.get()) < kLeastRsaBits)
    return InvalidArgument("an RSA key has 2048 bits at least");
  if (!e || !BN_is_odd(e.get()) || BN_is_one(e.get()))
    return InvalidArgument("an RSA key's exponent is odd and above 1");
  const ParamBuilderPtr builder(OSSL_PARAM_BLD_new());
  if (!builder || OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1)
    return Internal("make an RSA key");
  KeyPtr key = MakeKey("RSA", builder.get());
  if (!key) return InvalidArgument("the numbers are no RSA key");
  return PublicKey(Kind::kRsa, std::shared_ptr<evp_pkey_st>(std::move(key)));
}

Result<PublicKey> PublicKey::P256(std::string_view x, std::string_view y) {
  const OpenSslErrors errors;
  const std::string point = "\x04" + Coordinate(x) + Coordinate(y);  // uncompressed
  if (point.size() != 1 + 2 * kCoordinateBytes)
    return InvalidArgument("a point of P-256 has two numbers of 32 bytes");
  const ParamBuilderPtr builder(OSSL_PARAM_BLD_new());
  if (!builder ||
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) !=
          1 ||
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) != 1)
    return Internal("make a key on P-256");
  KeyPtr key = MakeKey("EC", builder.get());
  if (!key) return InvalidArgument("the numbers are no point of P-256");
  return PublicKey(Kind::kP256, std::shared_ptr<evp_pkey_st>(std::move(key)));
}

bool PublicKey::HasSigned(std::string_view text, std::string_view signature) const {
  const OpenSslErrors errors;
  const std::string der = kind_ == Kind::kP256 ? DerOfSignature(signature) : std::string(signature);
  const DigestContextPtr context(EVP_MD_CTX_new());
  return !der.empty() && context &&
         EVP_DigestVerifyInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get()) == 1 &&
         EVP_DigestVerify(context.get(), Bytes(der), der.size(), Bytes(text), text.size()) == 1;
}

}  // namespace muster
