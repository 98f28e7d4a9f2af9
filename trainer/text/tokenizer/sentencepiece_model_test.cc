#include "trainer/text/tokenizer/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "common/base/testing/temp_dir.h"
#include "trainer/text/tokenizer/byte_tokens.h"
#include "trainer/text/tokenizer/testing/wire_writer.h"
#include "trainer/text/tokenizer/tokenizer.h"
#include "trainer/text/tokenizer/utf8.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ModelOptions {
  std::int64_t model_type = 2;
  bool byte_fallback = true;
  bool dummy_prefix = true;
  bool extra_whitespaces = true;  // kept
};

constexpr std::int32_t kFirstPiece = 259;  // after <unk>, <s>, </s> and 256 bytes

std::string Piece(std::string_view text, float score, PieceType type = PieceType::kNormal) {
  WireWriter piece;
  piece.Bytes(1, text).Float(2, score);
  if (type != PieceType::kNormal) piece.Int(3, static_cast<std::int64_t>(type));
  return piece.bytes();
}

std::string Specs(const ModelOptions& options) {
  WireWriter trainer;
  trainer.Bytes(1, "corpus.txt").Int(3, options.model_type).Int(35, options.byte_fallback);
  WireWriter normalizer;
  normalizer.Bytes(1, "identity").Int(3, options.dummy_prefix).Int(4, !options.extra_whitespaces);
  return WireWriter().Bytes(2, trainer.bytes()).Bytes(3, normalizer.bytes()).bytes();
}

// A model of the shape of Llama 2's: `pieces` from 259 on, each better than the next.
std::string Model(const std::vector<std::string>& pieces, const ModelOptions& options = {}) {
  WireWriter model;
  model.Bytes(1, Piece("<unk>", 0, PieceType::kUnknown));
  model.Bytes(1, Piece("<s>", 0, PieceType::kControl));
  model.Bytes(1, Piece("</s>", 0, PieceType::kControl));
  for (int byte = 0; options.byte_fallback && byte < 256; ++byte)
    model.Bytes(1, Piece(ByteTokenName(static_cast<unsigned char>(byte)), 0, PieceType::kByte));
  float score = 0;
  for (const std::string& piece : pieces) model.Bytes(1, Piece(piece, score -= 1));
  return model.bytes() + Specs(options);
}

const std::vector<std::string> kPieces = {"▁a", "ab", "▁ab", "▁▁", "▁", "a", "b", "c"};

class SentencePieceTest : public ::testing::Test {
 protected:
  Result<Tokenizer> Load(const std::string& model) {
    dir_.Write("tokenizer.model", model);
    return Tokenizer::Load(dir_.path());
  }
  TempDirForTest dir_;
};

TEST_F(SentencePieceTest, MergesByScore) {
  const auto tokenizer = Load(Model(kPieces));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  // ▁ab: "▁a" is better than "ab", and no piece follows from "▁a" and "b" but "▁ab".
  EXPECT_THAT(tokenizer->Encode("ab"), ElementsAre(kFirstPiece + 2));
  EXPECT_THAT(tokenizer->Encode("cab"),
              ElementsAre(kFirstPiece + 4, kFirstPiece + 7, kFirstPiece + 1));
  EXPECT_THAT(tokenizer->Encode(" a"), ElementsAre(kFirstPiece + 4, kFirstPiece));
  EXPECT_THAT(tokenizer->Encode(""), ElementsAre());
  EXPECT_THAT(tokenizer->Encode("a", {.add_special_tokens = true}), ElementsAre(1, kFirstPiece));
  EXPECT_EQ(tokenizer->vocab_size(), kFirstPiece + 8);
}

TEST_F(SentencePieceTest, UnknownCharactersAreBytesOrOneUnknownForARun) {
  const auto bytes = Load(Model(kPieces));
  EXPECT_THAT(bytes->Encode("aé"), ElementsAre(kFirstPiece, 3 + 0xc3, 3 + 0xa9));
  EXPECT_EQ(bytes->Decode(bytes->Encode("aé c")), "aé c");
  EXPECT_EQ(bytes->Decode({3 + 0xc3, 3 + 0xa9, 3 + 0xff}), "é\xef\xbf\xbd");
  const auto unknown = Load(Model(kPieces, {.byte_fallback = false}));
  ASSERT_TRUE(unknown.ok()) << unknown.status().ToString();
  EXPECT_THAT(unknown->Encode("aéèa"), ElementsAre(3, 0, 8));
}

TEST_F(SentencePieceTest, ControlPiecesAreAddedTokens) {
  const auto tokenizer = Load(Model(kPieces));
  EXPECT_THAT(tokenizer->Encode("a</s>a"), ElementsAre(kFirstPiece, 2, kFirstPiece));
  EXPECT_EQ(tokenizer->Encode("</s>", {.parse_added_tokens = false}).front(), kFirstPiece + 4);
  EXPECT_EQ(tokenizer->Decode({1, kFirstPiece, 2}, {.skip_special_tokens = true}), "a");
  EXPECT_EQ(tokenizer->Decode({kFirstPiece, 2}), "a</s>");
}

TEST_F(SentencePieceTest, UserDefinedPiecesAreFoundBeforeAnythingIsMerged) {
  std::string model = Model(kPieces);
  model += WireWriter().Bytes(1, Piece("bc", 0, PieceType::kUserDefined)).bytes();
  const auto tokenizer = Load(model);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer->Encode("abca"),
              ElementsAre(kFirstPiece, kFirstPiece + 8, kFirstPiece + 5));
}

TEST_F(SentencePieceTest, SettingsOfTheNormalizerCount) {
  const auto plain = Load(Model(kPieces, {.dummy_prefix = false}));
  EXPECT_THAT(plain->Encode("ab"), ElementsAre(kFirstPiece + 1));
  EXPECT_EQ(plain->Decode({kFirstPiece}), " a");
  const auto tidy = Load(Model(kPieces, {.extra_whitespaces = false}));
  EXPECT_THAT(tidy->Encode("  ab   ab  "), ElementsAre(kFirstPiece + 2, kFirstPiece + 2));
  EXPECT_THAT(tidy->Encode("   "), ElementsAre());
  EXPECT_EQ(tidy->Decode({kFirstPiece + 4, kFirstPiece, kFirstPiece}), "a a");
}

TEST_F(SentencePieceTest, FilesBesideItAreMinded) {
  dir_.Write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true})");
  const auto tokenizer = Load(Model(kPieces));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
  EXPECT_THAT(tokenizer->Prefix(), ElementsAre());
  EXPECT_THAT(tokenizer->Suffix(), ElementsAre(2));
  dir_.Write("tokenizer_config.json", R"({"add_bos_token": "no"})");
  EXPECT_THAT(Load(Model(kPieces)).status().message(), HasSubstr("add_bos_token"));
  dir_.Write("tokenizer_config.json", "{}");
  dir_.Write("added_tokens.json", R"({"<s>": 1})");
  EXPECT_TRUE(Load(Model(kPieces)).ok());
  dir_.Write("added_tokens.json", R"({"<s>": 1, "<|im_end|>": 32000})");
  EXPECT_THAT(Load(Model(kPieces)).status().message(), HasSubstr("<|im_end|>"));
}

TEST_F(SentencePieceTest, ATokenizerJsonGoesBeforeIt) {
  dir_.Write("tokenizer.json", "{}");
  EXPECT_THAT(Load(Model(kPieces)).status().message(), HasSubstr("tokenizer.json"));
}

// The definition: of all neighbours whose texts make a piece the best one, leftmost first.
std::vector<std::int32_t> MergedByDefinition(std::vector<std::string> symbols,
                                             const std::vector<std::string>& pieces) {
  const auto place = [&](const std::string& text) {
    return std::find(pieces.begin(), pieces.end(), text) - pieces.begin();
  };
  const auto none = static_cast<std::ptrdiff_t>(pieces.size());
  while (true) {
    std::ptrdiff_t best = none;
    std::size_t at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::ptrdiff_t found = place(symbols[i] + symbols[i + 1]);
      if (found >= best) continue;
      best = found;
      at = i;
    }
    if (best == none) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& symbol : symbols)
    ids.push_back(kFirstPiece + static_cast<std::int32_t>(place(symbol)));
  return ids;
}

TEST_F(SentencePieceTest, EncodesAsTheDefinitionSays) {
  std::mt19937 random(11);
  const std::vector<std::string> alphabet = {"a", "b", "é", "▁"};
  for (int round = 0; round < 20; ++round) {
    std::vector<std::string> pieces = alphabet;
    for (int i = 0; i < 20; ++i) {
      const std::string piece = pieces[random() % pieces.size()] + pieces[random() % pieces.size()];
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    }
    std::shuffle(pieces.begin(), pieces.end(), random);
    const auto tokenizer = Load(Model(pieces));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().ToString();
    for (int i = 0; i < 50; ++i) {
      std::vector<std::string> symbols(1 + random() % 25);
      std::string text;
      for (std::string& symbol : symbols) text += symbol = alphabet[random() % alphabet.size()];
      symbols.insert(symbols.begin(), "▁");
      ASSERT_EQ(tokenizer->Encode(text), MergedByDefinition(symbols, pieces)) << text;
    }
  }
}

TEST_F(SentencePieceTest, OtherKindsAreRefusedByName) {
  EXPECT_THAT(Load(Model(kPieces, {.model_type = 1})).status().message(), HasSubstr("Unigram"));
  EXPECT_THAT(Load(Model(kPieces, {.model_type = 9})).status().message(), HasSubstr("model_type"));
  const struct {
    std::string field;
    const char* message;
  } cases[] = {
      {Piece("x", 0, PieceType::kUnused), "UNUSED"},
      {Piece("x", 0, static_cast<PieceType>(7)), "type 7"},
      {Piece("x", 0, PieceType::kControl), "single character"},
      {Piece("x y", 0, PieceType::kUserDefined), "blank"},
      {Piece("<0x41>x", 0, PieceType::kByte), "BYTE"},
      {Piece("<unk2>", 0, PieceType::kUnknown), "second"},
      {Piece("ab", 0), "twice"},
      {Piece("xy", 0), "which is no piece"},
      {Piece("", 0), "empty"},
      {Piece("\xff", 0), "UTF-8"},
      {Piece("d", std::numeric_limits<float>::quiet_NaN()), "score"},
      {Piece(std::string(2000, 'a'), 0), "2000 bytes"},
      {WireWriter().Int(1, 5).bytes(), "piece"},
      {WireWriter().Bytes(1, "d").Bytes(2, "x").bytes(), "score"},
  };
  for (const auto& c : cases) {
    const auto tokenizer = Load(Model(kPieces) + WireWriter().Bytes(1, c.field).bytes());
    ASSERT_FALSE(tokenizer.ok()) << c.message;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(c.message));
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(dir_ / "tokenizer.model"));
  }
}

TEST_F(SentencePieceTest, DamagedFilesAreErrorsOrOtherTokenizersButNeverMore) {
  const std::string model = Model(kPieces);
  std::mt19937 random(13);
  for (std::size_t size = 0; size < model.size(); size += 1 + random() % 90) {
    const auto tokenizer = Load(model.substr(0, size));
    ASSERT_FALSE(tokenizer.ok()) << size;
    EXPECT_THAT(tokenizer.status().message(), HasSubstr(dir_ / "tokenizer.model"));
  }
  EXPECT_THAT(Load(model.substr(0, 20)).status().message(), HasSubstr("ends within"));
  EXPECT_THAT(Load("").status().message(), HasSubstr("no pieces"));
  for (int round = 0; round < 100; ++round) {
    std::string damaged = model;
    for (int i = 0; i < 3; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
    const auto tokenizer = Load(damaged);
    if (tokenizer.ok()) {
      EXPECT_LE(tokenizer->Encode("ab é c").size(), 20u);
    } else {
      EXPECT_THAT(tokenizer.status().message(), HasSubstr(dir_ / "tokenizer.model"));
    }
  }
}

}  // namespace
}  // namespace muster
