// A model's tokenizer.json, and a text behind a zero byte that it encodes.
#include <string>

#include "tests/fuzz/fuzz.h"
#include "trainer/text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace muster;
  const std::string_view bytes = fuzz::TextOf(data, size);
  const std::size_t end = std::min(bytes.find('\0'), bytes.size());
  const Result<Tokenizer> tokenizer = Tokenizer::Parse(bytes.substr(0, end), "tokenizer.json");
  if (!tokenizer.ok()) return 0;
  std::string text = "Two  words,\n1234 caf\u00e9s <|im_end|> ";
  text += bytes.substr(end);
  for (const bool parses : {false, true}) {
    const auto ids =
        tokenizer->Encode(text, {.add_special_tokens = true, .parse_added_tokens = parses});
    for (const std::int32_t id : ids) {
      fuzz::Require(id >= 0 && id < tokenizer->vocab_size(), "ids lie within the vocabulary");
      tokenizer->TokenText(id);
    }
    tokenizer->Decode(ids, {.skip_special_tokens = parses});
  }
  return 0;
}
