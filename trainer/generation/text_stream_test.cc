#include "trainer/generation/text_stream.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

Tokenizer Load(const std::string& kind) {
  const std::string path = std::string(MUSTER_TOKENIZERS) + "/" + kind + ".tokenizer.json";
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return std::move(Tokenizer::Parse(text.str(), path).value());
}

const char kText[] =
    "Grüße aus Köln: 数 学 は 楽 し い 🙂🙃. She said: “don't” — and "
    "left.\n\n\tint "
    "main() "
    "{ "
    "return 0; } "
    "Ünïcödé 🏳️‍🌈 and back to plain words, many of them, so that the window of "
    "tokens "
    "moves "
    "on.";

class TextStreamOf : public testing::TestWithParam<const char*> {};

TEST_P(TextStreamOf, GivesTheWholeTextInWholeCharacters) {
  const Tokenizer tokenizer = Load(GetParam());
  const std::vector<std::int32_t> ids = tokenizer.Encode(kText);
  ASSERT_GT(ids.size(), 64u);
  TextStream stream(tokenizer, {});
  std::string got;
  for (const std::int32_t id : ids) {
    const std::string piece = stream.Add(id);
    EXPECT_EQ(ReplaceInvalidUtf8(piece), piece);
    EXPECT_EQ(piece.find("\xef\xbf\xbd"), std::string::npos);
    got += piece;
  }
  EXPECT_EQ(got + stream.Rest(), tokenizer.Decode(ids));
}

TEST_P(TextStreamOf, GoesOnFromAPrompt) {
  const Tokenizer tokenizer = Load(GetParam());
  const std::vector<std::int32_t> ids = tokenizer.Encode("one two three four five six seven");
  const std::string whole = tokenizer.Decode(ids);
  for (std::size_t cut = 1; cut < ids.size(); ++cut) {
    const std::vector<std::int32_t> before(ids.begin(),
                                           ids.begin() + static_cast<std::ptrdiff_t>(cut));
    TextStream stream(tokenizer, before);
    std::string got;
    for (std::size_t i = cut; i < ids.size(); ++i) got += stream.Add(ids[i]);
    EXPECT_EQ(tokenizer.Decode(before) + got + stream.Rest(), whole) << cut;
  }
}

TEST_P(TextStreamOf, ShowsAnIncompleteCharacterAtTheEndOnly) {
  const Tokenizer tokenizer = Load(GetParam());
  std::vector<std::int32_t> ids = tokenizer.Encode("a\xf0\x9f\xaa\xbf");
  while (!tokenizer.Decode(ids).ends_with("\xef\xbf\xbd")) ids.pop_back();
  TextStream stream(tokenizer, {});
  std::string got;
  for (const std::int32_t id : ids) got += stream.Add(id);
  EXPECT_EQ(got, "a");
  EXPECT_EQ(got + stream.Rest(), tokenizer.Decode(ids));
}

TEST(TextStream, ShowsAtLastWhatNeverBecomesACharacter) {
  const Tokenizer tokenizer = Load("gpt2");
  std::vector<std::int32_t> ids = tokenizer.Encode("\xe2\x82\xac");
  while (!tokenizer.Decode({ids.front()}).ends_with("\xef\xbf\xbd")) ids.erase(ids.begin());
  TextStream stream(tokenizer, {});
  std::string got;
  for (int i = 0; i < 300; ++i) got += stream.Add(ids.front());
  EXPECT_GT(got.size(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Kinds, TextStreamOf, testing::Values("gpt2", "llama2", "llama3", "qwen2"));

}  // namespace
}  // namespace muster
