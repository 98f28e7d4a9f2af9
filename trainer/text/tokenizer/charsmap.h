// Charsmap: the replacements of characters that a SentencePiece model brings along (NFKC and more),
// compiled into a double array by the program that trained it.
//
// The blob is the trie's size in bytes, the trie, and the replacements, each ended by a zero byte.
// At each place of a text the longest key counts; a character without one stays.
//
// Owned by Normalizer. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

class Charsmap {
 public:
  // Every step within the trie is checked when it is made, so that Run is safe on any blob that
  // this accepts.
  static Result<Charsmap> Parse(std::string_view blob);

  // `text` is valid UTF-8, and so is what comes back.
  std::string Run(std::string_view text) const;

 private:
  struct Match {
    std::size_t length = 0;       // of the key, 0: none
    std::size_t replacement = 0;  // where it begins
  };

  Match LongestAt(std::string_view text) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace muster
