#include "trainer/text/tokenizer/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "trainer/text/tokenizer/byte_tokens.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int32_t kUnknown = 1000;

// "a" 0, "b" 1, "▁" 2, "ab" 3, "▁a" 4, "▁ab" 5, "é" 6, "<unk>" 1000, bytes from 2000 on.
TokenMap SmallVocab(bool bytes) {
  TokenMap vocab = {{"a", 0},  {"b", 1},   {"▁", 2}, {"ab", 3},
                    {"▁a", 4}, {"▁ab", 5}, {"é", 6}, {"<unk>", kUnknown}};
  for (int byte = 0; bytes && byte < 256; ++byte)
    vocab.emplace(ByteTokenName(static_cast<unsigned char>(byte)), 2000 + byte);
  return vocab;
}

Bpe Small(BpeOptions options, bool bytes = true) {
  options.symbols = BpeSymbols::kCharacters;
  auto bpe =
      Bpe::Create(SmallVocab(bytes), {{"a", "b", 0}, {"▁", "ab", 1}, {"▁", "a", 2}}, options);
  EXPECT_TRUE(bpe.ok()) << bpe.status().ToString();
  return *std::move(bpe);
}

std::vector<std::int32_t> Ids(const Bpe& bpe, std::string_view piece) {
  BpeCache cache;
  std::vector<std::int32_t> ids;
  bpe.Encode(piece, &cache, &ids);
  return ids;
}

TEST(BpeTest, MergesCharactersByRank) {
  Bpe bpe = Small({});
  EXPECT_THAT(Ids(bpe, "▁ab▁a"), ElementsAre(5, 4));
  EXPECT_THAT(Ids(bpe, "éab"), ElementsAre(6, 3));
  EXPECT_THAT(Ids(bpe, ""), ElementsAre());
}

TEST(BpeTest, UnknownCharactersAreBytesWhereThoseAreThere) {
  Bpe bytes = Small({.byte_fallback = true, .unknown_id = kUnknown});
  EXPECT_THAT(Ids(bytes, "a\u00fcb"), ElementsAre(0, 2000 + 0xc3, 2000 + 0xbc, 1));
  EXPECT_TRUE(bytes.complete());
  Bpe none = Small({.byte_fallback = true, .unknown_id = kUnknown}, false);
  EXPECT_THAT(Ids(none, "a\u00fcb"), ElementsAre(0, kUnknown, 1));
  EXPECT_FALSE(none.complete());
}

TEST(BpeTest, RunsOfUnknownCharactersMayBeOne) {
  Bpe apart = Small({.unknown_id = kUnknown});
  EXPECT_THAT(Ids(apart, "xyaz"), ElementsAre(kUnknown, kUnknown, 0, kUnknown));
  Bpe fused = Small({.unknown_id = kUnknown, .fuse_unknown = true});
  EXPECT_THAT(Ids(fused, "xyaz"), ElementsAre(kUnknown, 0, kUnknown));
  Bpe silent = Small({});
  EXPECT_THAT(Ids(silent, "xyaz"), ElementsAre(0));
}

// Whole pieces count where merges are ignored, and only whole ones.
TEST(BpeTest, APartOfAPieceIsNotTakenForAWholeOne) {
  BpeOptions options{.symbols = BpeSymbols::kCharacters, .ignore_merges = true};
  auto bpe = Bpe::Create({{"a", 0}, {"b", 1}, {"ab", 2}, {"c", 3}}, {}, options);
  ASSERT_TRUE(bpe.ok());
  EXPECT_THAT(Ids(*bpe, "ab"), ElementsAre(2));
  EXPECT_THAT(Ids(*bpe, "abc"), ElementsAre(0, 1, 3));
  EXPECT_THAT(Ids(*bpe, "ab"), ElementsAre(2));
}

TEST(BpeTest, MergesNeedTheirTokens) {
  const auto bpe = Bpe::Create({{"a", 0}, {"b", 1}}, {{"a", "b", 0}}, {});
  ASSERT_FALSE(bpe.ok());
  EXPECT_THAT(bpe.status().message(), HasSubstr("needs the token ab"));
}

// The definition: of all neighbours that make a token those of lowest rank, leftmost first.
std::vector<std::int32_t> MergedByDefinition(std::vector<std::string> symbols,
                                             const std::vector<BpeMerge>& merges,
                                             const TokenMap& vocab) {
  std::map<std::pair<std::string, std::string>, std::int32_t> ranks;
  for (const BpeMerge& merge : merges) ranks[{merge.left, merge.right}] = merge.rank;
  while (true) {
    std::size_t best = symbols.size();
    std::int32_t best_rank = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto it = ranks.find({symbols[i], symbols[i + 1]});
      if (it == ranks.end() || (best < symbols.size() && it->second >= best_rank)) continue;
      best = i;
      best_rank = it->second;
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(vocab.at(symbol));
  return ids;
}

// Cutting a piece where nothing can be merged, and caching what is between, changes no id.
TEST(BpeTest, EncodesAsTheDefinitionSays) {
  std::mt19937 random(3);
  const std::vector<std::string> alphabet = {"a", "b", "c", "▁", "é", "漢"};
  for (int round = 0; round < 60; ++round) {
    TokenMap vocab;
    std::vector<std::string> tokens = alphabet;
    for (const std::string& token : tokens)
      vocab.emplace(token, static_cast<std::int32_t>(vocab.size()));
    std::vector<BpeMerge> merges;
    for (std::int32_t rank = 0; rank < 14; ++rank) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (vocab.emplace(left + right, static_cast<std::int32_t>(vocab.size())).second)
        tokens.push_back(left + right);
      merges.push_back({left, right, rank});
    }
    auto bpe = Bpe::Create(vocab, merges, {.symbols = BpeSymbols::kCharacters});
    ASSERT_TRUE(bpe.ok());
    for (int text = 0; text < 40; ++text) {
      std::vector<std::string> symbols(random() % 30);
      std::string piece;
      for (std::string& symbol : symbols) piece += symbol = alphabet[random() % alphabet.size()];
      ASSERT_EQ(Ids(*bpe, piece), MergedByDefinition(symbols, merges, vocab)) << piece;
    }
  }
}

TEST(BpeTest, ALongPieceTakesNoLongerThanItShould) {
  Bpe bpe = Small({});
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += "ab";
  EXPECT_EQ(Ids(bpe, text).size(), 200'000u);
  // Without a place to cut: every two neighbours may be merged.
  auto runs = Bpe::Create({{"a", 0}, {"aa", 1}, {"aaaa", 2}}, {{"a", "a", 0}, {"aa", "aa", 1}},
                          {.symbols = BpeSymbols::kCharacters});
  ASSERT_TRUE(runs.ok());
  EXPECT_EQ(Ids(*runs, std::string(400'000, 'a')).size(), 100'000u);
}

TEST(ByteTokensTest, NamesAndBytesBelongTogether) {
  EXPECT_EQ(ByteTokenName(0x0a), "<0x0A>");
  for (int byte = 0; byte < 256; ++byte)
    EXPECT_EQ(ByteOfToken(ByteTokenName(static_cast<unsigned char>(byte))), byte);
  for (const char* token : {"<0x0>", "<0xGG>", "<0x-1>", "<0x0A)", "(0x0A>", "<0x\u00e9>", ""})
    EXPECT_EQ(ByteOfToken(token), std::nullopt) << token;
}

}  // namespace
}  // namespace muster
