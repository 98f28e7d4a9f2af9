#include "common/security/sealed_box.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

const std::string kKey(kSealingKeyBytes, 'k');

TEST(SealedBox, OpensWithItsKeyAndContextAlone) {
  for (const std::string& plain : {std::string(), std::string("x"), std::string(70'000, '\0')}) {
    const std::string sealed = *Seal(kKey, plain, "of ada");
    EXPECT_EQ(*OpenSealed(kKey, sealed, "of ada"), plain);
    EXPECT_EQ(OpenSealed(kKey, sealed, "of bob").status().code(), StatusCode::kDataLoss);
    EXPECT_EQ(OpenSealed(std::string(kSealingKeyBytes, 'l'), sealed, "of ada").status().code(),
              StatusCode::kDataLoss);
  }
}

TEST(SealedBox, ShowsEachChangedBitAndEachCut) {
  const std::string sealed = *Seal(kKey, "hf_token", "");
  EXPECT_EQ(sealed.find("hf_token"), std::string::npos);
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    std::string changed = sealed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(OpenSealed(kKey, changed, "").ok()) << bit;
  }
  for (std::size_t size = 0; size < sealed.size(); ++size)
    EXPECT_FALSE(OpenSealed(kKey, sealed.substr(0, size), "").ok()) << size;
}

TEST(SealedBox, IsAnotherEachTime) { EXPECT_NE(*Seal(kKey, "same", ""), *Seal(kKey, "same", "")); }

// NIST's test case 16 of the GCM submission, by which another implementation would open it.
TEST(SealedBox, IsAesGcmAsOthersHaveIt) {
  const auto bytes = [](std::string_view hex) {
    std::string out;
    for (std::size_t i = 0; i < hex.size(); i += 2)
      out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
    return out;
  };
  const std::string key = bytes("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
  const std::string plain = bytes(
      "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6"
      "b525b16aedf5aa0de657ba637b39");
  const std::string sealed =
      bytes("cafebabefacedbaddecaf888") +
      bytes(
          "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b10"
          "56828838c5f61e6393ba7a0abcc9f662") +
      bytes("76fc6ece0f4e1768cddf8853bb2d551b");
  EXPECT_EQ(*OpenSealed(key, sealed, bytes("feedfacedeadbeeffeedfacedeadbeefabaddad2")), plain);
}

}  // namespace
}  // namespace muster
