// TokenizerParts: what a tokenizer's file says, checked: the parts that Tokenizer runs.
//
// Private to the module; made by tokenizer_json.h and sentencepiece_model.h.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/text/tokenizer/added_tokens.h"
#include "trainer/text/tokenizer/bpe.h"
#include "trainer/text/tokenizer/decoder.h"
#include "trainer/text/tokenizer/normalizer.h"
#include "trainer/text/tokenizer/pre_tokenizer.h"

namespace muster {

struct TokenizerParts {
  Bpe bpe;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Decoder decoder;
  std::vector<AddedToken> added_tokens;
  std::vector<std::int32_t> prefix_ids;  // of the post-processor's template
  std::vector<std::int32_t> suffix_ids;
};

// No vocabulary comes near it; the table from ids to tokens is allocated up to the largest id.
inline constexpr std::int32_t kMaxTokenId = (1 << 24) - 1;

}  // namespace muster
