// AddedTokens: finds the tokens that are recognised as a whole before a text is cut up.
//
// Leftmost match, longest among those that begin at the same place. Tokens that are matched before
// normalization and those matched after it are two instances.
//
// Immutable after Add; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;      // left out by Decode on request
  bool normalized = false;   // matched in the normalized text
  bool as_is = false;        // by its content there, not by what normalization makes of that
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // and after it
};

class AddedTokens {
 public:
  void Add(AddedToken token);

  // Calls `text_piece` or `token` for each part of `text`, in order.
  void Split(std::string_view text, const std::function<void(std::string_view)>& text_piece,
             const std::function<void(const AddedToken&)>& token) const;

 private:
  const AddedToken* LongestAt(std::string_view text, std::size_t position) const;

  // By first byte, longest first.
  std::array<std::vector<AddedToken>, 256> by_first_byte_;
};

}  // namespace muster
