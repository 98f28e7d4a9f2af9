// Reads a tokenizer.json of the Python package `tokenizers`.
//
// Private to tokenizer.cc. Errors: kInvalidArgument for a malformed file, kUnimplemented, by name,
// for a kind of tokenizer that this version does not read.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"
#include "trainer/text/tokenizer/tokenizer_parts.h"

namespace muster {

// `origin` is put before every error.
Result<TokenizerParts> ParseTokenizerJson(std::string_view json, const std::string& origin);

}  // namespace muster
