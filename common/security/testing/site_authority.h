// An authority of a site, as those of cert-manager and step-ca: a root, one between, certificates
// for servers. Tests only; one thread.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/security/pem.h"
#include "common/security/site_certificate.h"

namespace muster {

struct SiteServerForTest {
  std::string names = "DNS:Muster.example.org,DNS:*.lab.example.org";  // as OpenSSL writes them
  std::string usage = "serverAuth";
  long from_s = -60;  // from now
  long until_s = 3600;
  bool with_intermediate = true;
};

class SiteAuthorityForTest {
 public:
  const std::string& root_pem() const { return root_pem_; }

  // Made anew at each call; the files of that name are replaced.
  SiteCertificateFiles Write(const std::string& name, const SiteServerForTest& server = {}) {
    const KeyPtr key = GenerateKey().value();
    const X509Ptr leaf =
        Make("server", key.get(), intermediate_.get(), server.from_s, server.until_s);
    if (!server.names.empty()) Extend(leaf.get(), NID_subject_alt_name, server.names);
    if (!server.usage.empty()) Extend(leaf.get(), NID_ext_key_usage, server.usage);
    Sign(leaf.get(), intermediate_key_.get());
    const SiteCertificateFiles files{temp_ / (name + ".pem"), temp_ / (name + ".key")};
    const std::string rest = server.with_intermediate ? ToPem(intermediate_.get()).value() : "";
    EXPECT_TRUE(WriteFileAtomically(files.key, ToPem(key.get()).value(), 0600).ok());
    EXPECT_TRUE(WriteFileAtomically(files.chain, ToPem(leaf.get()).value() + rest, 0644).ok());
    return files;
  }

 private:
  // Not signed yet. `issuer`: null for itself.
  static X509Ptr Make(const char* name, EVP_PKEY* key, X509* issuer, long from_s, long until_s) {
    X509Ptr made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), from_s);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), until_s);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                               reinterpret_cast<const unsigned char*>(name), -1, -1, 0);
    X509_set_issuer_name(made.get(),
                         X509_get_subject_name(issuer != nullptr ? issuer : made.get()));
    X509_set_pubkey(made.get(), key);
    return made;
  }
  static X509Ptr MakeAuthority(const char* name, EVP_PKEY* key, X509* issuer,
                               EVP_PKEY* issuer_key) {
    X509Ptr made = Make(name, key, issuer, -60, 86'400);
    Extend(made.get(), NID_basic_constraints, "critical,CA:TRUE");
    Sign(made.get(), issuer_key);
    return made;
  }
  static void Extend(X509* certificate, int nid, const std::string& value) {
    const X509ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str()));
    ASSERT_TRUE(extension) << value;
    X509_add_ext(certificate, extension.get(), -1);
  }
  static void Sign(X509* certificate, EVP_PKEY* key) {
    ASSERT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  }

  static inline long serial_ = 0;
  const TempDirForTest temp_;
  const KeyPtr root_key_ = GenerateKey().value();
  const X509Ptr root_ = MakeAuthority("root", root_key_.get(), nullptr, root_key_.get());
  const KeyPtr intermediate_key_ = GenerateKey().value();
  const X509Ptr intermediate_ =
      MakeAuthority("intermediate", intermediate_key_.get(), root_.get(), root_key_.get());
  const std::string root_pem_ = ToPem(root_.get()).value();
};

}  // namespace muster
