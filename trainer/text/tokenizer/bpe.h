// Byte-pair encoding of one piece of text.
//
// Symbols are merged by falling priority (merge_table.h): the ids of the Python package
// `tokenizers`. What was encoded once comes from a cache of bounded size, which the caller keeps.
//
// Owned by Tokenizer. Immutable after Create; any thread, each with a cache of its own.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/tokenizer/character_pairs.h"
#include "trainer/text/tokenizer/merge_table.h"

namespace muster {

struct TransparentHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using TokenMap = std::unordered_map<std::string, std::int32_t, TransparentHash, std::equal_to<>>;

// The ids of pieces that were encoded before.
using BpeCache =
    std::unordered_map<std::string, std::vector<std::int32_t>, TransparentHash, std::equal_to<>>;

enum class BpeSymbols {
  kBytes,       // the vocabulary spells bytes (byte_alphabet.h)
  kCharacters,  // it spells text
};

struct BpeOptions {
  BpeSymbols symbols = BpeSymbols::kBytes;
  // A piece that is in the vocabulary as a whole is not built from merges (Llama 3).
  bool ignore_merges = false;
  // A character that the vocabulary lacks becomes the tokens <0x00> ... <0xFF> of its UTF-8 bytes,
  // where they are all there (Llama 2).
  bool byte_fallback = false;
  // For what is lacking then; without it that is left out, as `tokenizers` does.
  std::optional<std::int32_t> unknown_id;
  bool fuse_unknown = false;  // one id for a run of unknown characters
};

// Two tokens that become one. Merges are made in the order of their ranks.
struct BpeMerge {
  std::string left;
  std::string right;
  std::int32_t rank = 0;
};

class Bpe {
 public:
  // Fails if a merge names or makes a token outside of `vocab`, whose ids are not negative.
  static Result<Bpe> Create(TokenMap vocab, const std::vector<BpeMerge>& merges,
                            BpeOptions options);

  // Appends the ids of a piece: bytes, or valid UTF-8 where symbols are characters. `cache` was
  // filled by this Bpe alone.
  void Encode(std::string_view piece, BpeCache* cache, std::vector<std::int32_t>* out) const;

  const TokenMap& vocab() const { return vocab_; }
  // Whether everything has an id without an unknown_id.
  bool complete() const;

 private:
  class SymbolReader;

  Bpe() = default;
  void IndexSymbols();
  Status AddMerges(const std::vector<BpeMerge>& merges);
  std::int32_t IdOf(std::string_view token) const;
  std::int32_t CharacterId(char32_t c) const {
    return c < character_ids_.size() ? character_ids_[c] : -1;
  }
  std::size_t CutLength(std::string_view text) const;
  std::vector<std::int32_t> InitialIds(std::string_view text) const;
  void EncodeCached(std::string_view text, BpeCache* cache, std::vector<std::int32_t>* out) const;

  TokenMap vocab_;
  BpeOptions options_;
  // -1 where the vocabulary has none.
  std::array<std::int32_t, 256> alphabet_ids_{};
  std::array<std::int32_t, 256> fallback_ids_{};
  std::vector<std::int32_t> character_ids_;  // by code point
  std::size_t longest_token_ = 0;            // bytes
  MergeTable merges_;
  CharacterPairs pairs_;
};

}  // namespace muster
