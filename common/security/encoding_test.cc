#include "common/security/encoding.h"

#include <gtest/gtest.h>

#include <random>

namespace muster {
namespace {

TEST(Encoding, WritesHexadecimalDigits) {
  EXPECT_EQ(ToHex(std::string("\x00\x0f\xa5\xff", 4)), "000fa5ff");
  EXPECT_TRUE(IsHex("00ff", 4));
  EXPECT_FALSE(IsHex("00ff", 5));
  EXPECT_FALSE(IsHex("00FF", 4));
}

// The test vectors of RFC 4648, section 10, without their padding.
TEST(Encoding, WritesBase64AsTheRfcDoes) {
  const std::pair<const char*, const char*> kVectors[] = {
      {"", ""},           {"f", "Zg"},          {"fo", "Zm8"},         {"foo", "Zm9v"},
      {"foob", "Zm9vYg"}, {"fooba", "Zm9vYmE"}, {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : kVectors) {
    EXPECT_EQ(ToBase64Url(bytes), text);
    EXPECT_EQ(*FromBase64Url(text), bytes);
  }
  EXPECT_EQ(ToBase64Url("\xfb\xff"), "-_8");
}

TEST(Encoding, ReadsOneBase64TextForEachSequenceOfBytes) {
  for (const char* text : {"Zg=", "Zg==", "Zh", "Zm9", "Z", "Zm9vY", "Z g", "+/8", "Zg\n"})
    EXPECT_FALSE(FromBase64Url(text).ok()) << text;
}

TEST(Encoding, BringsRandomBytesBack) {
  std::mt19937 random(11);
  for (int i = 0; i < 2'000; ++i) {
    std::string bytes;
    for (std::size_t size = random() % 70; size > 0; --size) bytes += static_cast<char>(random());
    EXPECT_EQ(*FromBase64Url(ToBase64Url(bytes)), bytes);
  }
}

TEST(Encoding, HashesAsTheStandardDoes) {
  EXPECT_EQ(ToHex(Sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Encoding, DrawsOtherBytesEachTime) {
  EXPECT_EQ(RandomBytes(32)->size(), 32U);
  EXPECT_NE(*RandomBytes(32), *RandomBytes(32));
}

TEST(Encoding, ComparesWholeTexts) {
  EXPECT_TRUE(EqualInConstantTime("secret", "secret"));
  EXPECT_FALSE(EqualInConstantTime("secret", "secreT"));
  EXPECT_FALSE(EqualInConstantTime("secret", "secre"));
  EXPECT_TRUE(EqualInConstantTime("", ""));
}

}  // namespace
}  // namespace muster
