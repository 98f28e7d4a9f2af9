#include "common/security/sealed_box.h"

#include <openssl/evp.h>

#include <memory>

#include "common/base/check.h"
#include "common/security/encoding.h"

namespace muster {
namespace {

constexpr std::size_t kNonceBytes = 12;
constexpr std::size_t kTagBytes = 16;

using Cipher = std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)>;

Cipher NewCipher() { return {EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free}; }

const unsigned char* OctetsOf(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}
unsigned char* OctetsOf(std::string& text) { return reinterpret_cast<unsigned char*>(text.data()); }

}  // namespace

Result<std::string> Seal(std::string_view key, std::string_view plain, std::string_view context) {
  MUSTER_CHECK(key.size() == kSealingKeyBytes, "a key of 32 bytes");
  MUSTER_ASSIGN_OR_RETURN(std::string sealed, RandomBytes(kNonceBytes));
  sealed.resize(kNonceBytes + plain.size() + kTagBytes);
  const Cipher cipher = NewCipher();
  int size = 0;
  unsigned char* out = OctetsOf(sealed);
  const bool ok =
      cipher &&
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, OctetsOf(key), out) == 1 &&
      EVP_EncryptUpdate(cipher.get(), nullptr, &size, OctetsOf(context),
                        static_cast<int>(context.size())) == 1 &&
      EVP_EncryptUpdate(cipher.get(), out + kNonceBytes, &size, OctetsOf(plain),
                        static_cast<int>(plain.size())) == 1 &&
      EVP_EncryptFinal_ex(cipher.get(), out + kNonceBytes + plain.size(), &size) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTagBytes,
                          out + kNonceBytes + plain.size()) == 1;
  if (!ok) return Internal("a secret could not be encrypted");
  return sealed;
}

Result<std::string> OpenSealed(std::string_view key, std::string_view sealed,
                               std::string_view context) {
  MUSTER_CHECK(key.size() == kSealingKeyBytes, "a key of 32 bytes");
  const Status damaged = DataLoss("it was changed, or belongs to another key");
  if (sealed.size() < kNonceBytes + kTagBytes) return damaged;
  std::string tag(sealed.substr(sealed.size() - kTagBytes));
  const std::string_view body = sealed.substr(kNonceBytes, sealed.size() - kNonceBytes - kTagBytes);
  std::string plain(body.size(), '\0');
  const Cipher cipher = NewCipher();
  int size = 0;
  const bool ok =
      cipher &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, OctetsOf(key),
                         OctetsOf(sealed)) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &size, OctetsOf(context),
                        static_cast<int>(context.size())) == 1 &&
      EVP_DecryptUpdate(cipher.get(), OctetsOf(plain), &size, OctetsOf(body),
                        static_cast<int>(body.size())) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTagBytes, OctetsOf(tag)) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), OctetsOf(plain) + plain.size(), &size) == 1;
  if (!ok) return damaged;
  return plain;
}

}  // namespace muster
