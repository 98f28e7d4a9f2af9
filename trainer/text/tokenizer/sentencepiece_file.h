// SentencePieceFile: what a tokenizer.model holds.
//
// Fields that encoding does not depend on are passed over. Private to the module; plain values.
// Errors: kInvalidArgument, without the file's name, which the caller puts before them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

enum class PieceType : std::int64_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct SentencePiece {
  std::string text;  // valid UTF-8, not empty
  float score = 0;   // no NaN
  PieceType type = PieceType::kNormal;
};

// Defaults are those of the format.
struct SentencePieceFile {
  std::vector<SentencePiece> pieces;  // by id

  std::int64_t model_type = 1;  // 1 Unigram, 2 BPE, 3 words, 4 characters
  bool byte_fallback = false;
  bool whitespace_as_suffix = false;
  std::int64_t bos_id = 1;  // -1: none
  std::int64_t eos_id = 2;

  std::string charsmap;  // charsmap.h
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

Result<SentencePieceFile> ParseSentencePieceFile(std::string_view bytes);

}  // namespace muster
