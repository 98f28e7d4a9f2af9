#include "common/security/pem.h"

#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/pem.h>

#include <cstring>

namespace muster {
namespace {

// Ours have less than a thousandth of it; texts of others are not read without bound.
constexpr std::size_t kMaxPemBytes = 64 << 10;
constexpr char kCurve[] = "prime256v1";  // OpenSSL's name of P-256

int NoPassword(char*, int, int, void*) { return -1; }

BioPtr Reader(const std::string& text) {
  if (text.size() > kMaxPemBytes) return nullptr;
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

template <typename Pointer, typename Read>
Result<Pointer> FromPem(const std::string& pem, const std::string& what, Read read) {
  const OpenSslErrors errors;
  const BioPtr reader = Reader(pem);
  Pointer object(reader ? read(reader.get()) : nullptr);
  if (!object)
    return InvalidArgument("no " + what + " in PEM (-----BEGIN ...) is in the text of " +
                           std::to_string(pem.size()) + " bytes");
  return object;
}

template <typename Write>
Result<std::string> Written(const std::string& what, Write write) {
  const OpenSslErrors errors;
  const BioPtr memory(BIO_new(BIO_s_mem()));
  if (!memory || write(memory.get()) != 1)
    return errors.Take(StatusCode::kInternal, "write " + what);
  char* data = nullptr;
  const long size = BIO_get_mem_data(memory.get(), &data);
  return std::string(data, static_cast<std::size_t>(size));
}

}  // namespace

Result<X509Ptr> CertificateFromPem(const std::string& pem) {
  return FromPem<X509Ptr>(pem, "certificate", [](BIO* bio) {
    return PEM_read_bio_X509(bio, nullptr, NoPassword, nullptr);
  });
}

Result<std::vector<X509Ptr>> CertificatesFromPem(const std::string& pem) {
  MUSTER_ASSIGN_OR_RETURN(X509Ptr first, CertificateFromPem(pem));
  const OpenSslErrors errors;
  std::vector<X509Ptr> certificates;
  const BioPtr reader = Reader(pem);
  while (X509Ptr next{PEM_read_bio_X509(reader.get(), nullptr, NoPassword, nullptr)})
    certificates.push_back(std::move(next));
  return certificates;
}

Result<KeyPtr> PrivateKeyFromPem(const std::string& pem) {
  return FromPem<KeyPtr>(pem, "unencrypted private key", [](BIO* bio) {
    return PEM_read_bio_PrivateKey(bio, nullptr, NoPassword, nullptr);
  });
}

Result<X509RequestPtr> RequestFromPem(const std::string& pem) {
  return FromPem<X509RequestPtr>(pem, "certificate request", [](BIO* bio) {
    return PEM_read_bio_X509_REQ(bio, nullptr, NoPassword, nullptr);
  });
}

Result<std::string> ToPem(X509* certificate) {
  return Written("certificate", [&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); });
}

Result<std::string> ToPem(EVP_PKEY* private_key) {
  return Written("private key", [&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, private_key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

Result<std::string> ToPem(X509_REQ* request) {
  return Written("request", [&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request); });
}

Result<KeyPtr> GenerateKey() {
  const OpenSslErrors errors;
  KeyPtr key(EVP_EC_gen(kCurve));
  if (!key) return errors.Take(StatusCode::kInternal, "generate a key");
  return key;
}

bool IsP256(EVP_PKEY* key) {
  const OpenSslErrors errors;
  char name[64] = "";
  return EVP_PKEY_is_a(key, "EC") == 1 &&
         EVP_PKEY_get_group_name(key, name, sizeof name, nullptr) == 1 &&
         std::strcmp(name, kCurve) == 0;
}

}  // namespace muster
