// Reads a SentencePiece tokenizer.model of the kind BPE.
//
// Ids are those of the package `sentencepiece`. Its control pieces are added tokens here: they are
// recognised in a text whose added tokens are, as the tokenizer.json of such a model does, and each
// part between them is encoded as a text of its own. The id of <s> is put before a text and that of
// </s> not put behind it, unless tokenizer_config.json says otherwise (add_bos_token,
// add_eos_token).
//
// Private to tokenizer.cc. Errors name the file: kInvalidArgument for a malformed one,
// kUnimplemented for a kind that this version does not read.
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/text/tokenizer/sentencepiece_file.h"
#include "trainer/text/tokenizer/tokenizer_parts.h"

namespace muster {

// Reads dir/tokenizer.model, and what dir/tokenizer_config.json says of it.
Result<TokenizerParts> LoadSentencePiece(const std::string& dir);

// The same of a file that was read; without the name of the file in errors.
Result<TokenizerParts> PartsOfSentencePiece(const SentencePieceFile& file);

}  // namespace muster
