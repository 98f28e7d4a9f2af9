#include "trainer/text/tokenizer/charsmap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace muster {
namespace {

using ::testing::HasSubstr;

void AppendWord(std::uint32_t word, std::string* out) {
  for (int i = 0; i < 4; ++i) *out += static_cast<char>(word >> (8 * i) & 0xff);
}

// A double array in which every state has 256 units of its own: wasteful, but valid.
class TrieBuilder {
 public:
  TrieBuilder() : units_(512) { units_[0] = OffsetUnit(0, 256); }

  void Add(std::string_view key, const std::string& replacement) {
    std::size_t base = 256;
    for (std::size_t i = 0; i < key.size(); ++i) {
      const auto byte = static_cast<unsigned char>(key[i]);
      const std::size_t at = base ^ byte;
      if (!next_.contains(at)) {
        next_[at] = units_.size();
        units_.resize(units_.size() + 256);
      }
      base = next_[at];
      units_[at] = OffsetUnit(at, base) | byte | (units_[at] & 0x100);
      if (i + 1 < key.size()) continue;
      units_[at] |= 0x100;
      units_[base] = 0x80000000u | static_cast<std::uint32_t>(replacements_.size());
    }
    replacements_ += replacement + '\0';
  }

  std::string Blob() const {
    std::string blob;
    AppendWord(static_cast<std::uint32_t>(4 * units_.size()), &blob);
    for (const std::uint32_t unit : units_) AppendWord(unit, &blob);
    return blob + replacements_;
  }

 private:
  static std::uint32_t OffsetUnit(std::size_t at, std::size_t base) {
    return static_cast<std::uint32_t>(at ^ base) << 10;
  }

  std::vector<std::uint32_t> units_;
  std::map<std::size_t, std::size_t> next_;
  std::string replacements_;
};

std::string SmallBlob() {
  TrieBuilder builder;
  builder.Add("\u200b", "");
  builder.Add("A", "a");
  builder.Add("e\u0301", "\u00e9");
  builder.Add("e\u0301x", "[]");
  return builder.Blob();
}

TEST(CharsmapTest, ReplacesTheLongestKey) {
  const auto map = Charsmap::Parse(SmallBlob());
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_EQ(map->Run("BAe\u0301 e\u0301xe\u0302"), "Ba\u00e9 []e\u0302");
  EXPECT_EQ(map->Run("a\u200b\u200bb"), "ab");
  EXPECT_EQ(map->Run(""), "");
}

TEST(CharsmapTest, BrokenBlobsAreErrors) {
  const std::string blob = SmallBlob();
  const std::string broken[] = {"",
                                "abc",
                                std::string(4, '\0'),
                                std::string("\x03\0\0\0xxx\0", 8),
                                blob.substr(0, 100),
                                blob.substr(0, blob.size() - 1),
                                std::string(4, '\xff') + "x"};
  for (const std::string& bytes : broken) {
    const auto map = Charsmap::Parse(bytes);
    ASSERT_FALSE(map.ok()) << bytes.size();
    EXPECT_THAT(map.status().message(), HasSubstr("precompiled_charsmap"));
  }
}

TEST(CharsmapTest, ATrieOfNonsenseIsReadWithinItsBounds) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    std::string blob;
    const std::uint32_t units = 1 + random() % 600;
    AppendWord(4 * units, &blob);
    for (std::uint32_t i = 0; i < units; ++i)
      AppendWord(random() % 2 == 0 ? static_cast<std::uint32_t>(random())
                                   : (random() % 600) << 10 | 0x100 | random() % 256,
                 &blob);
    const auto map = Charsmap::Parse(blob + std::string("a\0b\0", 4));
    ASSERT_TRUE(map.ok());
    std::string text(50, 'a');
    for (char& c : text) c = static_cast<char>(random() % 128);
    EXPECT_LE(map->Run(text).size(), 150u);
  }
}

}  // namespace
}  // namespace muster
