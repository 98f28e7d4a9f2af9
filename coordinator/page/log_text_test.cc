#include "coordinator/page/log_text.h"

#include <gtest/gtest.h>

#include "common/base/json.h"

namespace muster {
namespace {

nlohmann::json TextOf(const std::string& data, std::int64_t begin, bool from_tail,
                      bool complete = false) {
  return nlohmann::json::parse(
      LogText({.data = data,
               .next_offset = begin + static_cast<std::int64_t>(data.size()),
               .at_end = complete,
               .final = complete,
               .path = "/out/logs/1/rank-0.log"},
              from_tail));
}

TEST(LogText, ReturnsWhereToContinue) {
  const auto json = TextOf("one\ntwo", 10, false);
  EXPECT_EQ(json["text"], "one\ntwo");
  EXPECT_EQ(json["next_offset"], 17);
  EXPECT_EQ(json["at_end"], false);
  EXPECT_EQ(json["path"], "/out/logs/1/rank-0.log");
}

TEST(LogText, ATailBeginsWithAWholeLine) {
  EXPECT_EQ(TextOf("of a line\nnext\n", 10, true)["text"], "next\n");
  EXPECT_EQ(TextOf("the first line\nnext\n", 0, true)["text"], "the first line\nnext\n");
  EXPECT_EQ(TextOf("one line that is longer", 10, true)["text"], "one line that is longer");
}

TEST(LogText, ACharacterThatIsNotAllThereIsLeftForTheNextPiece) {
  const std::string word = "a\xE2\x82\xAC";  // a, and a character of three bytes
  for (const std::size_t bytes : {2u, 3u}) {
    const auto json = TextOf(word.substr(0, bytes), 100, false);
    EXPECT_EQ(json["text"], "a") << bytes;
    EXPECT_EQ(json["next_offset"], 101) << bytes;
  }
  EXPECT_EQ(TextOf(word, 100, false)["text"], word);
  // It never will be.
  EXPECT_EQ(TextOf(word.substr(0, 2), 100, false, /*complete=*/true)["next_offset"], 102);
}

TEST(LogText, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(TextOf("a\xFF\xFE b", 0, false)["text"], "a\xEF\xBF\xBD\xEF\xBF\xBD b");
  // Continuation bytes without a beginning do not hold reading up.
  EXPECT_EQ(TextOf("\x80\x80\x80\x80", 0, false)["next_offset"], 4);
}

}  // namespace
}  // namespace muster
