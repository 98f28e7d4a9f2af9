#include "common/security/certificate_builder.h"

#include <initializer_list>
#include <string>

namespace muster {
namespace {

constexpr int kSerialBits = 128;

struct NameEntry {
  const char* field;
  std::string value;
};

struct Extension {
  int nid;
  std::string value;  // in the syntax of x509v3_config(5)
};

bool SetRandomSerial(X509* certificate) {
  const BignumPtr number(BN_new());
  // No bit is fixed. Zero is no serial, and does not come about either.
  return number && BN_rand(number.get(), kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
         !BN_is_zero(number.get()) &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetSubject(X509* certificate, std::initializer_list<NameEntry> entries) {
  const X509NamePtr name(X509_NAME_new());
  if (!name) return false;
  for (const NameEntry& entry : entries) {
    const auto* value = reinterpret_cast<const unsigned char*>(entry.value.data());
    if (X509_NAME_add_entry_by_txt(name.get(), entry.field, MBSTRING_ASC, value,
                                   static_cast<int>(entry.value.size()), -1, 0) != 1)
      return false;
  }
  return X509_set_subject_name(certificate, name.get()) == 1;
}

bool SetValidity(X509* certificate, const Validity& validity) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate),
                       static_cast<time_t>(validity.not_before_ms / 1000)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate),
                       static_cast<time_t>(validity.not_after_ms / 1000)) != nullptr;
}

bool AddExtensions(X509* certificate, X509* issuer, std::initializer_list<Extension> extensions) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  for (const Extension& extension : extensions) {
    const X509ExtensionPtr made(
        X509V3_EXT_conf_nid(nullptr, &context, extension.nid, extension.value.c_str()));
    if (!made || X509_add_ext(certificate, made.get(), -1) != 1) return false;
  }
  return true;
}

std::string ExtendedKeyUsage(Role role) {
  return ServerName(role).empty() ? "clientAuth" : "serverAuth,clientAuth";
}

std::string AlternativeNames(const Identity& identity) {
  const std::string uri = "URI:" + IdentityUri(identity);
  const std::string server(ServerName(identity.role));
  return server.empty() ? uri : uri + ",DNS:" + server;
}

// What both kinds have.
X509Ptr Begin(EVP_PKEY* public_key, const Validity& validity) {
  X509Ptr certificate(X509_new());
  if (!certificate || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !SetRandomSerial(certificate.get()) || !SetValidity(certificate.get(), validity) ||
      X509_set_pubkey(certificate.get(), public_key) != 1)
    return nullptr;
  return certificate;
}

}  // namespace

Result<X509Ptr> BuildAuthority(EVP_PKEY* key, const std::string& cluster, const Validity& validity,
                               int path_length) {
  const OpenSslErrors errors;
  X509Ptr certificate = Begin(key, validity);
  X509* const self = certificate.get();
  const bool made =
      self && SetSubject(self, {{"O", kAuthorityOrganization}, {"CN", cluster}}) &&
      X509_set_issuer_name(self, X509_get_subject_name(self)) == 1 &&
      AddExtensions(
          self, self,
          {{NID_basic_constraints, "critical,CA:TRUE,pathlen:" + std::to_string(path_length)},
           {NID_key_usage, "critical,keyCertSign,cRLSign"},
           {NID_subject_key_identifier, "hash"}}) &&
      AddExtensions(self, self, {{NID_authority_key_identifier, "keyid:always"}}) &&
      X509_sign(self, key, EVP_sha256()) > 0;
  if (!made) return errors.Take(StatusCode::kInternal, "make the authority's certificate");
  return certificate;
}

Result<X509Ptr> BuildUserAuthority(EVP_PKEY* key, const std::string& cluster,
                                   const Validity& validity, X509* authority,
                                   EVP_PKEY* authority_key) {
  const OpenSslErrors errors;
  X509Ptr certificate = Begin(key, validity);
  X509* const own = certificate.get();
  const bool made = own && SetSubject(own, {{"O", kUserAuthorityOrganization}, {"CN", cluster}}) &&
                    X509_set_issuer_name(own, X509_get_subject_name(authority)) == 1 &&
                    AddExtensions(own, authority,
                                  {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                                   {NID_key_usage, "critical,keyCertSign"},
                                   {NID_ext_key_usage, "clientAuth"},
                                   {NID_subject_key_identifier, "hash"},
                                   {NID_authority_key_identifier, "keyid:always"}}) &&
                    X509_sign(own, authority_key, EVP_sha256()) > 0;
  if (!made) return errors.Take(StatusCode::kInternal, "make the users' authority");
  return certificate;
}

Result<X509Ptr> BuildLoopbackCertificate(EVP_PKEY* key, const std::string& name,
                                         const Validity& validity) {
  const OpenSslErrors errors;
  X509Ptr certificate = Begin(key, validity);
  X509* const self = certificate.get();
  const bool made = self && SetSubject(self, {{"CN", name}}) &&
                    X509_set_issuer_name(self, X509_get_subject_name(self)) == 1 &&
                    AddExtensions(self, self,
                                  {{NID_basic_constraints, "critical,CA:FALSE"},
                                   {NID_key_usage, "critical,digitalSignature"},
                                   {NID_ext_key_usage, "serverAuth,clientAuth"},
                                   {NID_subject_alt_name, "IP:127.0.0.1"}}) &&
                    X509_sign(self, key, EVP_sha256()) > 0;
  if (!made) return errors.Take(StatusCode::kInternal, "make a certificate for 127.0.0.1");
  return certificate;
}

Result<X509Ptr> BuildCertificate(EVP_PKEY* public_key, const Identity& identity,
                                 const Validity& validity, X509* authority,
                                 EVP_PKEY* authority_key) {
  const OpenSslErrors errors;
  X509Ptr certificate = Begin(public_key, validity);
  X509* const leaf = certificate.get();
  const bool made = leaf &&
                    SetSubject(leaf, {{"O", "Muster"},
                                      {"OU", std::string(RoleWord(identity.role))},
                                      {"CN", identity.name}}) &&
                    X509_set_issuer_name(leaf, X509_get_subject_name(authority)) == 1 &&
                    AddExtensions(leaf, authority,
                                  {{NID_basic_constraints, "critical,CA:FALSE"},
                                   {NID_key_usage, "critical,digitalSignature"},
                                   {NID_ext_key_usage, ExtendedKeyUsage(identity.role)},
                                   {NID_subject_key_identifier, "hash"},
                                   {NID_authority_key_identifier, "keyid:always"},
                                   {NID_subject_alt_name, AlternativeNames(identity)}}) &&
                    X509_sign(leaf, authority_key, EVP_sha256()) > 0;
  if (!made)
    return errors.Take(StatusCode::kInternal, "make a certificate for " + IdentityUri(identity));
  return certificate;
}

}  // namespace muster
