// What a tokenizer.json says, checked: the parts that Tokenizer runs.
//
// Private to tokenizer.cc. Errors: kInvalidArgument for a malformed file, kUnimplemented, by name,
// for a kind of tokenizer that this version does not read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "trainer/tokenizer/added_tokens.h"
#include "trainer/tokenizer/bpe.h"
#include "trainer/tokenizer/pre_tokenizer.h"

namespace muster {

struct TokenizerParts {
  Bpe bpe;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens;
  bool compose = false;                  // normalizer NFC
  std::vector<std::int32_t> prefix_ids;  // of the post-processor's template
  std::vector<std::int32_t> suffix_ids;
};

// `origin` is put before every error.
Result<TokenizerParts> ParseTokenizerJson(std::string_view json, const std::string& origin);

}  // namespace muster
