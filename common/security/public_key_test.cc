#include "common/security/public_key.h"

#include <gtest/gtest.h>

#include <string>

#include "common/security/encoding.h"

namespace muster {
namespace {

std::string Bytes(const char* base64url) { return FromBase64Url(base64url).value(); }

// RFC 7515, appendix A.3.
TEST(PublicKeyTest, VerifiesTheExampleOfRfc7515) {
  const auto key = PublicKey::P256(Bytes("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"),
                                   Bytes("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"));
  ASSERT_TRUE(key.ok()) << key.status().ToString();
  const std::string text =
      "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlL"
      "mNvbS9pc19yb290Ijp0cnVlfQ";
  const std::string signature = Bytes(
      "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q");
  EXPECT_TRUE(key->HasSigned(text, signature));
  const auto padded =
      PublicKey::P256(std::string(1, '\0') + Bytes("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"),
                      Bytes("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"));
  ASSERT_TRUE(padded.ok()) << "Glewlwyd writes numbers so";
  EXPECT_TRUE(padded->HasSigned(text, signature));
  EXPECT_FALSE(key->HasSigned(text + "x", signature));
  EXPECT_FALSE(key->HasSigned(text, std::string(64, '\0')));
  EXPECT_FALSE(key->HasSigned(text, signature + '\0'));
  EXPECT_FALSE(key->HasSigned(text, ""));
}

TEST(PublicKeyTest, RefusesWhatIsNoKey) {
  EXPECT_FALSE(PublicKey::P256(std::string(32, '\1'), std::string(32, '\1')).ok());
  EXPECT_FALSE(PublicKey::P256("", "").ok());
  // RFC 7515, appendix A.2.
  const std::string modulus = Bytes(
      "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4"
      "d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5re"
      "xMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxX"
      "FvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ");
  const std::string exponent = "\1" + std::string(1, '\0') + "\1";
  EXPECT_TRUE(PublicKey::Rsa(modulus, exponent).ok());
  EXPECT_FALSE(PublicKey::Rsa(modulus.substr(1), exponent).ok()) << "2040 bits";
  EXPECT_FALSE(PublicKey::Rsa(std::string(1, '\0') + modulus.substr(1), exponent).ok());
  EXPECT_FALSE(PublicKey::Rsa(std::string(1025, '\xab'), exponent).ok());
  for (const char* bad : {"", "\1", "\2", "\1\1\1\1\1\1\1\1\1"})
    EXPECT_FALSE(PublicKey::Rsa(modulus, bad).ok());
}

}  // namespace
}  // namespace muster
