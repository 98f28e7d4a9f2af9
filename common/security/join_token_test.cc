#include "common/security/join_token.h"

#include <random>

#include "common/security/encoding.h"
#include "common/security/testing/authority.h"

namespace muster {
namespace {

class JoinTokenTest : public AuthorityForTest {
 protected:
  const CertificateAuthority authority_ = MakeAuthority();
  const JoinToken token_{.id = "00112233445566ff",
                         .secret = std::string(31, '\x80') + '\0',
                         .expires_ms = kNowForTest + kHourMs,
                         .cluster = "lab",
                         .ca_pem = authority_.certificate_pem()};
};

TEST_F(JoinTokenTest, IsTheSameAfterItsText) {
  const auto text = EncodeJoinToken(token_);
  ASSERT_TRUE(text.ok()) << text.status().ToString();
  EXPECT_TRUE(text->starts_with("muster-join-v1."));
  // One word for a shell.
  EXPECT_EQ(text->find_first_of(" \t\n'\"\\$&|;<>()"), std::string::npos);
  const auto read = ParseJoinToken(" " + *text + "\n");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(*read, token_);
}

TEST_F(JoinTokenTest, WithAnyCharacterChangedIsRefused) {
  const std::string text = *EncodeJoinToken(token_);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (const char other : {'A', 'z', '0', '-', '_', '.', '=', '\0'}) {
      std::string changed = text;
      if (changed[i] == other) continue;
      changed[i] = other;
      EXPECT_FALSE(ParseJoinToken(changed).ok()) << i << " " << other;
    }
  }
}

TEST_F(JoinTokenTest, WithAnyBitOfItsBytesChangedIsRefused) {
  const std::string text = *EncodeJoinToken(token_);
  const std::string bytes = *FromBase64Url(text.substr(sizeof kJoinTokenPrefix - 1));
  for (std::size_t i = 0; i < 8 * bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ (1 << i % 8));
    EXPECT_FALSE(ParseJoinToken(kJoinTokenPrefix + ToBase64Url(changed)).ok()) << i;
  }
}

TEST_F(JoinTokenTest, CutOrLengthenedIsRefused) {
  const std::string text = *EncodeJoinToken(token_);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(ParseJoinToken(text.substr(0, size)).ok()) << size;
  EXPECT_FALSE(ParseJoinToken(text + "A").ok());
  EXPECT_FALSE(ParseJoinToken(text + text).ok());
  EXPECT_FALSE(ParseJoinToken(std::string(1 << 20, 'A')).ok());
}

// A forger that makes up a checksum as well: the parts are still looked at.
TEST_F(JoinTokenTest, FromRandomBytesIsRefused) {
  std::mt19937 random(5);
  for (int i = 0; i < 3'000; ++i) {
    std::string body;
    for (std::size_t size = random() % 120; size > 0; --size) body += static_cast<char>(random());
    EXPECT_FALSE(ParseJoinToken(body).ok());
    const std::string checked = body + Sha256(body).substr(0, 8);
    EXPECT_FALSE(ParseJoinToken(kJoinTokenPrefix + ToBase64Url(checked)).ok());
  }
}

TEST_F(JoinTokenTest, HoldsAnAuthorityAndNotJustACertificate) {
  JoinToken token = token_;
  token.ca_pem = IssueNode(authority_).certificate_pem;
  EXPECT_FALSE(ParseJoinToken(*EncodeJoinToken(token)).ok());
}

TEST_F(JoinTokenTest, IsNotMadeOfPartsThatAreNone) {
  const auto refused = [](JoinToken token) { return !EncodeJoinToken(token).ok(); };
  JoinToken token = token_;
  token.secret.pop_back();
  EXPECT_TRUE(refused(token));
  token = token_;
  token.id = "0011";
  EXPECT_TRUE(refused(token));
  token = token_;
  token.ca_pem = "x";
  EXPECT_TRUE(refused(token));
}

TEST(InvitationTest, IsTheSameAfterItsText) {
  for (const Invitation& one :
       {Invitation{"muster-join-v1.x", "", ""}, Invitation{"muster-join-v1.x", "10.0.0.1:7072", ""},
        Invitation{"muster-join-v1.x", "[fd00::1]:7072", "[fd00::1]:7070"}}) {
    EXPECT_EQ(*ParseInvitation(InvitationText(one)), one);
    EXPECT_EQ(*ParseInvitation("\n" + InvitationText(one) + "\n"), one);
  }
  EXPECT_FALSE(ParseInvitation("muster-join-v1.x muster-join-v1.y").ok());
}

}  // namespace
}  // namespace muster
