// Owners for what OpenSSL's C interface hands out, and its errors as Status. Only for the sources
// of common/security.
//
// OpenSSL keeps errors in a queue of the thread, which gRPC's TLS reads as well: OpenSslErrors
// takes out of it what its scope has put in.
#pragma once

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "common/base/status.h"

namespace muster {

template <auto Free>
struct OpenSslFree {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

using BioPtr = std::unique_ptr<BIO, OpenSslFree<BIO_free>>;
using BignumPtr = std::unique_ptr<BIGNUM, OpenSslFree<BN_free>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpenSslFree<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, OpenSslFree<X509_free>>;
using X509RequestPtr = std::unique_ptr<X509_REQ, OpenSslFree<X509_REQ_free>>;
using X509NamePtr = std::unique_ptr<X509_NAME, OpenSslFree<X509_NAME_free>>;
using X509ExtensionPtr = std::unique_ptr<X509_EXTENSION, OpenSslFree<X509_EXTENSION_free>>;
using GeneralNamesPtr = std::unique_ptr<GENERAL_NAMES, OpenSslFree<GENERAL_NAMES_free>>;

class OpenSslErrors {
 public:
  OpenSslErrors() { ERR_set_mark(); }
  ~OpenSslErrors() { ERR_pop_to_mark(); }
  OpenSslErrors(const OpenSslErrors&) = delete;
  OpenSslErrors& operator=(const OpenSslErrors&) = delete;

  // "sign the certificate: REASON", by the newest error.
  Status Take(StatusCode code, const std::string& what) const {
    const unsigned long error = ERR_peek_last_error();
    char reason[256] = "no reason given";
    if (error != 0) ERR_error_string_n(error, reason, sizeof reason);
    return Status(code, what + ": " + reason);
  }
};

}  // namespace muster
