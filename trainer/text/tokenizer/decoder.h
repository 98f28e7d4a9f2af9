// Decoder: makes text of tokens, by the steps of a tokenizer.json's `decoder` or of a SentencePiece
// model.
//
// A step takes the list of tokens and gives another; what is left after the last one is joined.
// Total: every list of tokens, which are valid UTF-8, gives valid UTF-8. A kind of step that this
// version does not know is refused by name.
//
// Owned by Tokenizer; one thread at a time because of the patterns' match buffers.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/result.h"
#include "trainer/text/tokenizer/text_replacement.h"

namespace muster {

namespace decoder_step {

// The bytes that the tokens spell (byte_alphabet.h); U+FFFD for what is no UTF-8.
struct ByteLevel {};
struct Replace {
  TextReplacement replacement;
};
// Runs of tokens <0x00> ... <0xFF>.
struct ByteFallback {
  // Where a run is no UTF-8: U+FFFD for each byte of the run, or only for the broken ones.
  enum class Broken { kWholeRun, kBytes } broken = Broken::kWholeRun;
};
struct Fuse {};
// A character at the ends of each token, so often at most.
struct Strip {
  std::string character;
  std::size_t start = 0;
  std::size_t stop = 0;
};
// Marks become blanks; those of the first token may be what encoding has put there.
struct Metaspace {
  std::string mark;
  bool drop_in_first = true;
};
// A mark at the beginning of the text's first token, or of several as long as nothing is left of
// them: what SentencePiece takes its own prefix for.
struct DropFirstMarks {
  std::string mark;
  bool all = false;
};

}  // namespace decoder_step

using DecoderStep =
    std::variant<decoder_step::ByteLevel, decoder_step::Replace, decoder_step::ByteFallback,
                 decoder_step::Fuse, decoder_step::Strip, decoder_step::Metaspace,
                 decoder_step::DropFirstMarks>;

class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  // `json` is the value of `decoder`. Where there is none, blanks are put between the tokens.
  static Result<Decoder> Create(const nlohmann::json& json);

  std::string Run(std::vector<std::string> tokens) const;

 private:
  Status AddStep(const nlohmann::json& json, int depth);
  Status AddStrip(const nlohmann::json& json);
  Status AddMetaspace(const nlohmann::json& json);

  std::vector<DecoderStep> steps_;
  bool blanks_between_ = false;
};

}  // namespace muster
