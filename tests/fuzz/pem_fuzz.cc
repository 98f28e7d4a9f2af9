// Certificates, requests and keys that another party sends. The first byte says what the rest is:
// 'c', 'r', 'k' the DER of a certificate, a request, a private key; else PEM as it is.
#include <algorithm>
#include <string>

#include "common/security/certificate.h"
#include "common/security/certificate_request.h"
#include "common/security/encoding.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace muster;

std::string Armoured(std::string_view der, const std::string& what) {
  std::string base64 = ToBase64Url(der);
  std::ranges::replace(base64, '-', '+');
  std::ranges::replace(base64, '_', '/');
  base64.append((4 - base64.size() % 4) % 4, '=');
  std::string pem = "-----BEGIN " + what + "-----\n";
  for (std::size_t at = 0; at < base64.size(); at += 64) pem += base64.substr(at, 64) + "\n";
  return pem + "-----END " + what + "-----\n";
}

std::string PemOf(std::string_view text) {
  const char kind = text.empty() ? '\0' : text.front();
  if (kind == 'c') return Armoured(text.substr(1), "CERTIFICATE");
  if (kind == 'r') return Armoured(text.substr(1), "CERTIFICATE REQUEST");
  if (kind == 'k') return Armoured(text.substr(1), "PRIVATE KEY");
  return std::string(text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string pem = PemOf(fuzz::TextOf(data, size));
  const Result<CertificateInfo> info = ReadCertificate(pem);
  if (info.ok()) {
    fuzz::Require(CheckIdentity(info->identity).ok(), "a certificate names an identity");
    fuzz::RequireSame(ParseIdentityUri(IdentityUri(info->identity)), info->identity,
                      "an identity that is written is the same");
    fuzz::Require(IsHex(info->serial, 32), "a serial has 32 digits");
  }
  const Result<AuthorityInfo> authority = ReadAuthority(pem);
  if (authority.ok())
    fuzz::Require(IsHex(authority->fingerprint, 64), "a fingerprint has 64 digits");
  const Result<std::string> key = KeyOfRequest(pem);
  fuzz::Require(key.ok() == CheckCertificateRequest(pem).ok(), "a good request has a key");
  (void)CheckBelongTogether(pem, pem, pem);
  const Result<std::string> der = PemToDer(pem);
  if (der.ok()) {
    const Result<std::string> back = DerToPem(*der);
    fuzz::Require(back.ok(), "a certificate that was read can be written");
    fuzz::RequireSame(PemToDer(*back), *der, "a certificate that is written is the same");
  }
  return 0;
}
