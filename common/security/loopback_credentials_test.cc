#include "common/security/loopback_credentials.h"

#include <gtest/gtest.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "common/base/clock.h"
#include "common/security/openssl_handles.h"
#include "common/security/pem.h"

namespace muster {
namespace {

// What OpenSSL finds against the certificate `leaf` where `trusted` alone is believed.
int Verified(X509* leaf, X509* trusted, int purpose) {
  X509_STORE* store = X509_STORE_new();
  X509_STORE_add_cert(store, trusted);
  X509_STORE_CTX* context = X509_STORE_CTX_new();
  X509_STORE_CTX_init(context, store, leaf, nullptr);
  X509_STORE_CTX_set_purpose(context, purpose);
  X509_verify_cert(context);
  const int error = X509_STORE_CTX_get_error(context);
  X509_STORE_CTX_free(context);
  X509_STORE_free(store);
  return error;
}

TEST(LoopbackCredentialsTest, AreBelievedByThoseWhoHaveThemAndByNoOthers) {
  const std::int64_t now_ms = SystemClock().UnixMillis();
  const auto own = MakeLoopbackCredentials("etcd", now_ms);
  const auto others = MakeLoopbackCredentials("etcd", now_ms);
  ASSERT_TRUE(own.ok() && others.ok());
  const auto certificate = CertificateFromPem(own->certificate_pem);
  const auto other = CertificateFromPem(others->certificate_pem);
  const auto key = PrivateKeyFromPem(own->key_pem);
  ASSERT_TRUE(certificate.ok() && other.ok() && key.ok());
  EXPECT_EQ(X509_check_private_key(certificate->get(), key->get()), 1);
  for (const int purpose : {X509_PURPOSE_SSL_SERVER, X509_PURPOSE_SSL_CLIENT}) {
    EXPECT_EQ(Verified(certificate->get(), certificate->get(), purpose), X509_V_OK);
    EXPECT_NE(Verified(certificate->get(), other->get(), purpose), X509_V_OK);
  }
  EXPECT_EQ(X509_check_ip_asc(certificate->get(), "127.0.0.1", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate->get(), "10.0.0.1", 0), 0);
}

}  // namespace
}  // namespace muster
