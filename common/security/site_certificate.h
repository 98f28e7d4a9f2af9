// SiteCertificate: a certificate for host names that an authority of the site's has made, as
// cert-manager, step-ca and SPIFFE's tools write it: a chain in PEM, the server's first, and its
// private key. Browsers know a server by it; in the cluster it is no identity.
//
// These tools link files and change what a link leads to, and a file may be root's. So links are
// followed, and the key may be read by its group, but by no others.
//
// A value; any thread. Load blocks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct SiteCertificateFiles {
  std::string chain;  // empty: there is none
  std::string key;    // may be the same file
};

struct SiteCertificate {
  std::string chain_pem;
  std::string key_pem;
  std::vector<std::string> names;  // DNS names of the server, in lower case; "*.example.org" too
  std::int64_t not_after_ms = 0;   // Unix time in milliseconds

  // kPermissionDenied for a key that others may read; kFailedPrecondition, with the file's name,
  // for a certificate that no browser would accept at `now_ms`, and for one of another key.
  static Result<SiteCertificate> Load(const SiteCertificateFiles& files, std::int64_t now_ms);

  // A wildcard stands for one label (RFC 6125, 6.4.3).
  bool IsFor(std::string host) const;
};

}  // namespace muster
