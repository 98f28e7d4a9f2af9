// Certificates that are refused although they have not expired.
//
// A file (DIR/security/revoked.json) of {"revoked": [{identity | serial, revoked_ms, reason,
// readmitted_ms}]}. An entry for a serial refuses that certificate. An entry for an identity
// refuses all of its certificates, renewed ones too, until the identity is readmitted, which a join
// token made for the node afterwards does, and `muster certs issue`; those from before stay
// refused.
//
// `muster certs revoke` writes the file; the coordinator reads it again when it has changed
// (RevocationFile), and before it signs anything. Times are milliseconds since the Unix epoch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/security/certificate.h"
#include "common/security/identity.h"
#include "common/security/private_files.h"

namespace muster {

struct Revocation {
  std::string serial;    // 32 hexadecimal digits; "": `identity` is revoked as such
  std::string identity;  // its URI; of a serial only for people to read, and may be ""
  std::int64_t revoked_ms = 0;
  std::string reason;
  std::int64_t readmitted_ms = 0;  // of an identity; 0: not

  friend bool operator==(const Revocation&, const Revocation&) = default;
};

// A value; any thread.
class RevocationList {
 public:
  RevocationList() = default;
  explicit RevocationList(std::vector<Revocation> entries) : entries_(std::move(entries)) {}

  const std::vector<Revocation>& entries() const { return entries_; }
  // OK, or kUnauthenticated with when and why the certificate was revoked.
  Status Check(const CertificateInfo& certificate) const;
  // The entry by which the identity as such is revoked now; nullptr when it is not.
  const Revocation* Find(const Identity& identity) const;

 private:
  std::vector<Revocation> entries_;
};

// Empty where there is no file. kDataLoss for what is no list, with the entry.
Result<RevocationList> LoadRevocations(const std::string& path);

// Adds an entry; one that is there already stays as it is. Locks the file's directory; blocks.
Status Revoke(const std::string& path, const Revocation& entry);
// Lets the identity have certificates again. OK where it was not revoked. kUnavailable within the
// second of the revocation, which certificates cannot resolve.
Status Readmit(const std::string& path, const Identity& identity, std::int64_t now_ms);

// The list of a file that others replace. One thread; Refresh blocks for a small file.
class RevocationFile {
 public:
  explicit RevocationFile(std::string path) : path_(std::move(path)) {}

  // Reads the file if it is another one than last time. True: the list has changed. A file that
  // cannot be read leaves the list as it was, and is tried again next time.
  Result<bool> Refresh();
  const RevocationList& list() const { return list_; }

 private:
  std::string path_;
  FileStamp stamp_;
  RevocationList list_;
};

}  // namespace muster
