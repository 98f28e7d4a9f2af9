#include "trainer/comm/rendezvous/peer_proof.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <set>

namespace muster {
namespace {

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(HmacSha256, GivesThePublishedValues) {
  EXPECT_EQ(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(HmacSha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(HmacSha256(std::string(131, '\xaa'),
                           "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(PeerProof, IsAnotherOneForEveryTokenPurposeDirectionAndNonce) {
  const std::string nonce(kNonceBytes, 'n');
  std::set<std::string> proofs = {PeerProof("token", "store", 1, 2, nonce)};
  EXPECT_EQ(proofs.begin()->size(), kProofBytes);
  proofs.insert(PeerProof("other", "store", 1, 2, nonce));
  proofs.insert(PeerProof("token", "ring", 1, 2, nonce));
  proofs.insert(PeerProof("token", "store", 2, 1, nonce));
  proofs.insert(PeerProof("token", "store", 12, 2, nonce));
  proofs.insert(PeerProof("token", "store", 1, 2, std::string(kNonceBytes, 'm')));
  EXPECT_EQ(proofs.size(), 6U);
  EXPECT_TRUE(SameProof(PeerProof("token", "store", 1, 2, nonce),
                        PeerProof("token", "store", 1, 2, nonce)));
  EXPECT_FALSE(SameProof("", *proofs.begin()));
}

TEST(Nonce, IsNeverTheSame) {
  std::set<std::string> nonces;
  for (int i = 0; i < 100; ++i) nonces.insert(Nonce());
  EXPECT_EQ(nonces.size(), 100U);
}

}  // namespace
}  // namespace muster
