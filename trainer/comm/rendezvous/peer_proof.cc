#include "trainer/comm/rendezvous/peer_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include "common/base/check.h"

namespace muster {

std::string Nonce() {
  std::string bytes(kNonceBytes, '\0');
  // The kernel gives up to 256 bytes whole once it has been seeded at boot.
  MUSTER_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
               "getrandom");
  return bytes;
}

std::string HmacSha256(std::string_view key, std::string_view message) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const auto* made =
      ::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
             reinterpret_cast<const unsigned char*>(message.data()), message.size(), digest, &size);
  MUSTER_CHECK(made != nullptr && size == kProofBytes, "HMAC-SHA256 is there");
  return std::string(reinterpret_cast<const char*>(digest), size);
}

std::string PeerProof(std::string_view token, std::string_view purpose, int from, int to,
                      std::string_view nonces) {
  // The nonces have a fixed length and stand last, so no two messages are the same bytes.
  std::string message = "muster rendezvous 1 ";
  message.append(purpose);
  message += " from " + std::to_string(from) + " to " + std::to_string(to) + " ";
  message.append(nonces);
  return HmacSha256(token, message);
}

bool SameProof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace muster
