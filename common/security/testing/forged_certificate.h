// What a thief of the users' authority would sign with its key. Tests only.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "common/base/files.h"
#include "common/security/certificate_authority.h"
#include "common/security/certificate_builder.h"
#include "common/security/pem.h"

namespace muster {

// For `identity`, by the authority in `dir` (user_authority.h): with the chain behind it.
inline IssuedCertificate ForgeForTest(const std::string& dir, const Identity& identity,
                                      std::int64_t now_ms) {
  const std::string authority_pem = ReadFile(dir + "/cert.pem").value();
  const X509Ptr authority = CertificateFromPem(authority_pem).value();
  const KeyPtr authority_key = PrivateKeyFromPem(ReadFile(dir + "/key.pem").value()).value();
  const KeyPtr key = GenerateKey().value();
  const X509Ptr leaf = BuildCertificate(key.get(), identity, {now_ms - 60'000, now_ms + 3'600'000},
                                        authority.get(), authority_key.get())
                           .value();
  return {.certificate_pem = ToPem(leaf.get()).value() + authority_pem,
          .key_pem = ToPem(key.get()).value()};
}

}  // namespace muster
