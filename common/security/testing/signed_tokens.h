// An issuer's keys, their set, and tokens that they sign, well or badly. Tests only.
#pragma once

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/ecdsa.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/obj_mac.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/security/encoding.h"

namespace muster {

class SigningKeyForTest {
 public:
  explicit SigningKeyForTest(std::string kid, unsigned rsa_bits = 2048)
      : kid_(std::move(kid)), rsa_(true), key_(EVP_RSA_gen(rsa_bits), EVP_PKEY_free) {}
  struct Ec {
    const char* curve = "prime256v1";
  };
  SigningKeyForTest(std::string kid, Ec ec)
      : kid_(std::move(kid)), rsa_(false), key_(EVP_EC_gen(ec.curve), EVP_PKEY_free) {}

  std::string algorithm() const { return rsa_ ? "RS256" : "ES256"; }
  const std::string& kid() const { return kid_; }

  nlohmann::json Jwk() const {
    if (rsa_)
      return {{"kty", "RSA"},
              {"kid", kid_},
              {"use", "sig"},
              {"n", Number(OSSL_PKEY_PARAM_RSA_N)},
              {"e", Number(OSSL_PKEY_PARAM_RSA_E)}};
    return {{"kty", "EC"},
            {"kid", kid_},
            {"crv", "P-256"},
            {"x", Number(OSSL_PKEY_PARAM_EC_PUB_X, 32)},
            {"y", Number(OSSL_PKEY_PARAM_EC_PUB_Y, 32)}};
  }

  std::string PublicPem() const {
    BIO* memory = BIO_new(BIO_s_mem());
    PEM_write_bio_PUBKEY(memory, key_.get());
    char* data = nullptr;
    const long size = BIO_get_mem_data(memory, &data);
    std::string pem(data, static_cast<std::size_t>(size));
    BIO_free(memory);
    return pem;
  }

  std::string Sign(const nlohmann::json& header, const nlohmann::json& claims) const {
    return SignText(header.dump(), claims.dump());
  }
  // Whatever they are.
  std::string SignText(std::string_view header, std::string_view claims) const {
    const std::string text = ToBase64Url(header) + "." + ToBase64Url(claims);
    return text + "." + ToBase64Url(Signature(text));
  }
  std::string Sign(const nlohmann::json& claims) const {
    return Sign({{"alg", algorithm()}, {"kid", kid_}, {"typ", "JWT"}}, claims);
  }

  static std::string Unsigned(const nlohmann::json& header, const nlohmann::json& claims) {
    return ToBase64Url(header.dump()) + "." + ToBase64Url(claims.dump());
  }
  // As one who takes the public key for a secret.
  static std::string HmacSigned(const std::string& secret, const nlohmann::json& header,
                                const nlohmann::json& claims) {
    const std::string text = Unsigned(header, claims);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int size = 0;
    HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
         reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest, &size);
    return text + "." + ToBase64Url({reinterpret_cast<const char*>(digest), size});
  }

  // An ES256 token with the other signature that is its key's too, (r, n - s) in the place of
  // (r, s). It takes no private key.
  static std::string WithOtherSignature(const std::string& token) {
    const std::size_t end = token.rfind('.') + 1;
    std::string signature = FromBase64Url(token.substr(end)).value();
    auto* s = reinterpret_cast<unsigned char*>(signature.data()) + 32;
    const std::unique_ptr<EC_GROUP, decltype(&EC_GROUP_free)> curve(
        EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1), EC_GROUP_free);
    const std::unique_ptr<BIGNUM, decltype(&BN_free)> number(BN_bin2bn(s, 32, nullptr), BN_free);
    BN_sub(number.get(), EC_GROUP_get0_order(curve.get()), number.get());
    BN_bn2binpad(number.get(), s, 32);
    return token.substr(0, end) + ToBase64Url(signature);
  }

 private:
  std::string Number(const char* name, int bytes = 0) const {
    BIGNUM* number = nullptr;
    EVP_PKEY_get_bn_param(key_.get(), name, &number);
    const int size = bytes > 0 ? bytes : BN_num_bytes(number);
    std::string text(static_cast<std::size_t>(size), '\0');
    BN_bn2binpad(number, reinterpret_cast<unsigned char*>(text.data()), size);
    BN_free(number);
    return ToBase64Url(text);
  }

  std::string Signature(const std::string& text) const {
    const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                          EVP_MD_CTX_free);
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    std::size_t size = 0;
    EVP_DigestSignInit(context.get(), nullptr, EVP_sha256(), nullptr, key_.get());
    EVP_DigestSign(context.get(), nullptr, &size, bytes, text.size());
    std::string signature(size, '\0');
    EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, bytes,
                   text.size());
    signature.resize(size);
    if (rsa_) return signature;
    const auto* der = reinterpret_cast<const unsigned char*>(signature.data());
    ECDSA_SIG* both = d2i_ECDSA_SIG(nullptr, &der, static_cast<long>(size));
    std::string raw(64, '\0');
    auto* out = reinterpret_cast<unsigned char*>(raw.data());
    BN_bn2binpad(ECDSA_SIG_get0_r(both), out, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(both), out + 32, 32);
    ECDSA_SIG_free(both);
    return raw;
  }

  std::string kid_;
  bool rsa_;
  std::shared_ptr<EVP_PKEY> key_;
};

inline std::string KeySetOf(const std::vector<SigningKeyForTest>& keys) {
  nlohmann::json set = {{"keys", nlohmann::json::array()}};
  for (const SigningKeyForTest& key : keys) set["keys"].push_back(key.Jwk());
  return set.dump();
}

}  // namespace muster
