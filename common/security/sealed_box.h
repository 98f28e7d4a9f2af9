// Authenticated encryption: AES-256-GCM (NIST SP 800-38D) with a random nonce.
//
// Pure functions, but for the nonce; any thread. Sealed: nonce (12 bytes), ciphertext, tag (16).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

inline constexpr std::size_t kSealingKeyBytes = 32;

// `context` is not in the result, and must be the same to open it.
Result<std::string> Seal(std::string_view key, std::string_view plain, std::string_view context);
// kDataLoss: it was changed, or has another key or context.
Result<std::string> OpenSealed(std::string_view key, std::string_view sealed,
                               std::string_view context);

}  // namespace muster
