// The tokens <0x00> ... <0xFF>, which vocabularies with byte fallback hold for single bytes.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace muster {

// "<0x0A>"
std::string ByteTokenName(unsigned char byte);

// The byte of such a token, whose digits may be of either case.
std::optional<unsigned char> ByteOfToken(std::string_view token);

}  // namespace muster
