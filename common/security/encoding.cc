#include "common/security/encoding.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <cstdint>

#include "common/base/check.h"
#include "common/security/openssl_handles.h"

namespace muster {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";
constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

}  // namespace

std::string ToHex(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

bool IsHex(std::string_view text, std::size_t digits) {
  return text.size() == digits && text.find_first_not_of(kHexDigits) == text.npos;
}

std::string ToBase64Url(std::string_view bytes) {
  std::string text;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    for (held += 8; held >= 6; held -= 6) text += kBase64Digits[bits >> (held - 6) & 63];
  }
  if (held > 0) text += kBase64Digits[bits << (6 - held) & 63];
  return text;
}

Result<std::string> FromBase64Url(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char c : text) {
    const std::size_t digit = kBase64Digits.find(c);
    if (digit == kBase64Digits.npos) return InvalidArgument("a character is not of base64url");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes += static_cast<char>(bits >> held & 255);
  }
  // Left are the unused bits of the last digit: a whole digit says nothing, and set bits would make
  // two texts for the same bytes.
  if (held >= 6 || (bits & ((1U << held) - 1)) != 0)
    return InvalidArgument("the end is not of base64url");
  return bytes;
}

std::string Sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), /*impl=*/nullptr);
  MUSTER_CHECK(done == 1 && size == 32, "SHA-256 is there");
  return std::string(reinterpret_cast<const char*>(digest), size);
}

Result<std::string> RandomBytes(std::size_t count) {
  const OpenSslErrors errors;
  std::string bytes(count, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count)) != 1)
    return errors.Take(StatusCode::kInternal, "random bytes");
  return bytes;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace muster
