// Credentials directories: what a process shows to others, and by what it believes them.
//
//   DIR/ca.pem        the authority's certificate
//   DIR/cert.pem      the process's own
//   DIR/key.pem       and its private key, 0600
//   DIR/revoked.json  optional: certificates that are refused (revocation.h)
//   DIR/serving.pem   optional: key and certificate in one file, 0600 (KeepServingFile)
//   DIR/replacement.json  only while the three files are replaced, or after a crash in between
//
// The three files are replaced as a whole: first all three are written into replacement.json, which
// counts from then on, then each of them, then it is removed. So a reader has a certificate with
// its own key and authority at any time, and after any crash; and other programs find plain PEM
// files.
//
// One process writes a directory (the files are locked against a second one), any number reads it.
// Free functions; any thread; they block.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "common/security/certificate.h"
#include "common/security/identity.h"
#include "common/security/private_files.h"

namespace muster {

struct CredentialFiles {
  std::string ca_pem;
  std::string cert_pem;
  std::string key_pem;
};

struct Credentials {
  std::string ca_pem;
  std::string cert_pem;
  std::string key_pem;
  Identity identity;
  std::string serial;
  std::int64_t issued_ms = 0;     // milliseconds since the Unix epoch
  std::int64_t not_after_ms = 0;  // expired credentials are loaded too: see CheckNotExpired
};

// kNotFound for a directory without credentials; kPermissionDenied for a key that others may know;
// kFailedPrecondition for files that do not belong together.
Result<Credentials> LoadCredentials(const std::string& dir);

// Refuses files that do not belong together; makes the directory (0700) where there is none.
Status WriteCredentials(const std::string& dir, const CredentialFiles& files);

// Ends a replacement that a crash has cut short; for the start of the process that writes the
// directory. What was left of it does not count where certificate and key have come after it, say
// because a user has copied others there. OK where there is nothing to mend.
Status MendCredentials(const std::string& dir);

// For servers that follow files without knowing of replacement.json (gRPC): they would see a key
// with another's certificate between two writes, and for good after a crash there. Makes
// DIR/serving.pem hold the key and certificate of `credentials`, as one step, and gives back its
// path; writes nothing where it does already. A server calls it at the start and with what is
// loaded later.
Result<std::string> KeepServingFile(const std::string& dir, const Credentials& credentials);

// Whether WriteCredentials would find a directory that it can write to: tried with a file as large
// as what it writes, before a certificate is signed that could not be kept.
Status CheckCanWriteCredentials(const std::string& dir);

// kFailedPrecondition, with what to do about it, once the certificate has expired.
Status CheckNotExpired(const Credentials& credentials, std::int64_t now_ms);

// When to ask for the next certificate: after two thirds of the lifetime, so that a third of it is
// left for a coordinator that cannot be reached.
std::int64_t RenewalDueMs(const Credentials& credentials);

// Changes whenever LoadCredentials may have another answer: looked at by a timer, so that renewed
// credentials come into use without a restart.
struct CredentialsStamp {
  FileStamp replacement;
  FileStamp ca;
  FileStamp cert;
  FileStamp key;

  friend bool operator==(const CredentialsStamp&, const CredentialsStamp&) = default;
};
CredentialsStamp StampOfCredentials(const std::string& dir);

}  // namespace muster
