// The files of a tokenizer with more added tokens, as transformers writes them: what
// tokenizer.add_tokens and save_pretrained make of tokenizer.json and tokenizer_config.json.
//
// A new token has the id after the tokenizer's largest, in the order of the list. A text that is
// already a token of the vocabulary keeps its id and is recognised as a whole from then on; one
// that is an added token already stays as it is. Everything else in the files stays in its place.
//
// Pure functions; any thread. Errors: kInvalidArgument for a file that is malformed or a token that
// cannot be one, and what Tokenizer::Parse gives.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct NewToken {
  std::string content;
  bool special = true;  // left out of decoded texts on request; matched before normalization
};

struct ExtendedTokenizer {
  struct Id {
    std::string content;
    std::int32_t id = 0;
  };
  std::string json;             // tokenizer.json
  std::vector<Id> added;        // without those that were added tokens already
  std::int32_t vocab_size = 0;  // the largest id plus one
};

// `origin` names the file in errors.
Result<ExtendedTokenizer> ExtendTokenizerJson(std::string_view json,
                                              const std::vector<NewToken>& tokens,
                                              const std::string& origin);

// tokenizer_config.json with all added tokens of `tokenizer_json` in its added_tokens_decoder.
Result<std::string> ExtendTokenizerConfig(std::string_view config, std::string_view tokenizer_json,
                                          const std::string& origin);

}  // namespace muster
