// GPT-2's alphabet: one printable character for each byte, in which byte-level vocabularies are
// written ("Ġ" is the blank).
//
// Immutable tables built at the first use; any thread.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace muster {

// The character of each byte, as UTF-8.
const std::array<std::string, 256>& ByteAlphabet();

// Bytes spelled in the alphabet.
std::string SpellBytes(std::string_view bytes);

// The bytes that a token spells. A token with a character outside of the alphabet (an added token
// with a blank in it) stands for itself.
std::string UnspellBytes(std::string_view token);

}  // namespace muster
