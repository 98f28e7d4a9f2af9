// A model's tokenizer.model, of SentencePiece.
#include <string>

#include "common/base/testing/temp_dir.h"
#include "tests/fuzz/fuzz.h"
#include "trainer/text/tokenizer/sentencepiece_file.h"
#include "trainer/text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const std::string_view bytes = fuzz::TextOf(data, size);
  const Result<SentencePieceFile> file = ParseSentencePieceFile(bytes);
  if (!file.ok()) return 0;
  for (const SentencePiece& piece : file->pieces)
    fuzz::Require(!piece.text.empty() && piece.score == piece.score, "a piece has text and score");
  static const TempDirForTest dir;
  dir.Write("tokenizer.model", std::string(bytes));
  const Result<Tokenizer> tokenizer = Tokenizer::Load(dir.path());
  if (!tokenizer.ok()) return 0;
  const auto ids = tokenizer->Encode("Two  words,\n1234 caf\u00e9s \xff<s>");
  for (const std::int32_t id : ids)
    fuzz::Require(id >= 0 && id < tokenizer->vocab_size(), "ids lie within the vocabulary");
  tokenizer->Decode(ids);
  return 0;
}
