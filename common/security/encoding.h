// Bytes and secrets as text, and back.
//
// Pure functions, but for RandomBytes; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/result.h"

namespace muster {

std::string ToHex(std::string_view bytes);  // lower case
bool IsHex(std::string_view text, std::size_t digits);

// Base64 with '-' and '_', without padding (RFC 4648, section 5). Strict: one text for each
// sequence of bytes.
std::string ToBase64Url(std::string_view bytes);
Result<std::string> FromBase64Url(std::string_view text);

std::string Sha256(std::string_view bytes);  // 32 bytes

// From the generator that OpenSSL makes its keys with.
Result<std::string> RandomBytes(std::size_t count);

// Takes the same time wherever the texts differ.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace muster
