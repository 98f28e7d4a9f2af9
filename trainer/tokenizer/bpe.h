// Byte-pair encoding of one pre-token over a byte-level vocabulary.
//
// Merges the neighbours of lowest rank until none is left, leftmost first among equals: the ids
// of the Python package `tokenizers`. A pre-token of n bytes costs O(n log n); what was encoded
// once comes from a cache of bounded size.
//
// Owned by Tokenizer; one thread at a time because of the cache.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct TransparentHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const {
    return std::hash<std::string_view>{}(text);
  }
};
using TokenMap = std::unordered_map<std::string, std::int32_t, TransparentHash, std::equal_to<>>;

struct BpeOptions {
  // A pre-token that is in the vocabulary as a whole is not built from merges (Llama 3).
  bool ignore_merges = false;
  // For bytes that the vocabulary lacks; without it they are left out, as `tokenizers` does.
  std::optional<std::int32_t> unknown_id;
  bool fuse_unknown = false;  // one id for a run of such bytes
};

class Bpe {
 public:
  // `merges` by falling priority. Fails if a merge names or makes a token outside of `vocab`.
  static Result<Bpe> Create(TokenMap vocab,
                            const std::vector<std::pair<std::string, std::string>>& merges,
                            BpeOptions options);

  // Appends the ids of a pre-token, given as raw bytes.
  void Encode(std::string_view bytes, std::vector<std::int32_t>* out);

  const TokenMap& vocab() const { return vocab_; }

 private:
  struct Merge {
    std::int32_t rank = 0;
    std::int32_t id = 0;
  };

  Bpe() = default;
  std::vector<std::int32_t> MergeBytes(std::string_view bytes) const;
  std::vector<std::int32_t> InitialIds(std::string_view bytes) const;
  const Merge* FindMerge(std::int32_t left, std::int32_t right) const;

  TokenMap vocab_;
  BpeOptions options_;
  std::array<std::int32_t, 256> byte_ids_{};  // -1: not in the vocabulary
  std::unordered_map<std::uint64_t, Merge> merges_;
  std::unordered_map<std::string, std::vector<std::int32_t>, TransparentHash, std::equal_to<>>
      cache_;
};

}  // namespace muster
