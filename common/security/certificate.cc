#include "common/security/certificate.h"

#include <time.h>

#include <string_view>

#include "common/security/certificate_builder.h"
#include "common/security/encoding.h"
#include "common/security/pem.h"

namespace muster {
namespace {

constexpr int kSerialBytes = 16;
constexpr std::int64_t kSkewMs =
    std::chrono::duration_cast<std::chrono::milliseconds>(kClockSkew).count();

Result<std::int64_t> UnixMs(const ASN1_TIME* time) {
  tm parts{};
  if (time == nullptr || ASN1_TIME_to_tm(time, &parts) != 1)
    return InvalidArgument("the certificate has no readable time of validity");
  return std::int64_t{::timegm(&parts)} * 1000;
}

Result<std::string> SerialOf(X509* certificate) {
  const BignumPtr number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate), nullptr));
  unsigned char bytes[kSerialBytes];
  if (!number || BN_is_negative(number.get()) ||
      BN_bn2binpad(number.get(), bytes, sizeof bytes) != kSerialBytes)
    return InvalidArgument(
        "the certificate's serial has more than 128 bits: no Muster authority "
        "made it");
  return ToHex({reinterpret_cast<const char*>(bytes), sizeof bytes});
}

// Exactly one URI: with two it would be open which one counts.
Result<Identity> IdentityOf(X509* certificate) {
  const GeneralNamesPtr names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  const int count = names ? sk_GENERAL_NAME_num(names.get()) : 0;
  std::string uri;
  int uris = 0;
  for (int i = 0; i < count; ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    ++uris;
    const ASN1_STRING* text = name->d.uniformResourceIdentifier;
    uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
               static_cast<std::size_t>(ASN1_STRING_length(text)));
  }
  if (uris != 1)
    return InvalidArgument("the certificate names " + std::to_string(uris) +
                           " URIs instead of one identity: no Muster authority made it");
  return ParseIdentityUri(uri);
}

// The issuer is who has signed: TLS finds the next certificate of a chain by this name.
bool IsByUserAuthority(X509* certificate) {
  X509_NAME* issuer = X509_get_issuer_name(certificate);
  char organization[128] = "";
  X509_NAME_get_text_by_NID(issuer, NID_organizationName, organization, sizeof organization);
  return std::string_view(organization) == kUserAuthorityOrganization;
}

Result<CertificateInfo> Read(X509* certificate) {
  const OpenSslErrors errors;
  CertificateInfo info;
  MUSTER_ASSIGN_OR_RETURN(info.identity, IdentityOf(certificate));
  if (info.identity.role != Role::kUser && IsByUserAuthority(certificate))
    return InvalidArgument("the authority for users has signed a certificate of " +
                           IdentityUri(info.identity) + ", which it may not");
  MUSTER_ASSIGN_OR_RETURN(info.serial, SerialOf(certificate));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t not_before, UnixMs(X509_get0_notBefore(certificate)));
  info.issued_ms = not_before + kSkewMs;
  MUSTER_ASSIGN_OR_RETURN(info.not_after_ms, UnixMs(X509_get0_notAfter(certificate)));
  return info;
}

Result<std::string> CommonName(X509* certificate) {
  X509_NAME* subject = X509_get_subject_name(certificate);
  const int index = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (index < 0) return InvalidArgument("the authority's certificate names no cluster");
  const ASN1_STRING* text = X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, index));
  return std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
                     static_cast<std::size_t>(ASN1_STRING_length(text)));
}

Result<AuthorityInfo> ReadAuthority(X509* certificate) {
  const OpenSslErrors errors;
  // 1 alone means that the certificate itself says so, in its basic constraints.
  if (X509_check_ca(certificate) != 1)
    return InvalidArgument("the certificate is not one of an authority (ca.pem)");
  AuthorityInfo info;
  MUSTER_ASSIGN_OR_RETURN(info.cluster, CommonName(certificate));
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", info.cluster));
  MUSTER_ASSIGN_OR_RETURN(info.not_before_ms, UnixMs(X509_get0_notBefore(certificate)));
  MUSTER_ASSIGN_OR_RETURN(info.not_after_ms, UnixMs(X509_get0_notAfter(certificate)));
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (X509_digest(certificate, EVP_sha256(), digest, &size) != 1)
    return errors.Take(StatusCode::kInternal, "hash the certificate");
  info.fingerprint = ToHex({reinterpret_cast<const char*>(digest), size});
  return info;
}

}  // namespace

Result<CertificateInfo> ReadCertificate(const std::string& certificate_pem) {
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr certificate, CertificateFromPem(certificate_pem));
  return Read(certificate.get());
}

Result<AuthorityInfo> ReadAuthority(const std::string& ca_pem) {
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr certificate, CertificateFromPem(ca_pem));
  return ReadAuthority(certificate.get());
}

Status CheckBelongTogether(const std::string& ca_pem, const std::string& certificate_pem,
                           const std::string& key_pem) {
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr authority, CertificateFromPem(ca_pem));
  MUSTER_RETURN_IF_ERROR(ReadAuthority(authority.get()).status());
  MUSTER_ASSIGN_OR_RETURN(const auto chain, CertificatesFromPem(certificate_pem));
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, PrivateKeyFromPem(key_pem));
  const OpenSslErrors errors;
  X509* const leaf = chain.front().get();
  if (X509_check_private_key(leaf, key.get()) != 1)
    return FailedPrecondition("the private key is not the certificate's");
  // The one cipher of TLS before 1.3 that gRPC is left needs such a key (common/rpc/tls.h).
  if (EVP_PKEY_is_a(key.get(), "RSA") == 1)
    return FailedPrecondition(
        "the private key is one of RSA, which would allow TLS before 1.3; make one of P-256");
  const auto signed_by = [](X509* certificate, X509* signer) {
    return X509_verify(certificate, X509_get0_pubkey(signer)) == 1;
  };
  const bool by_next = chain.size() == 2 && signed_by(leaf, chain[1].get()) &&
                       signed_by(chain[1].get(), authority.get());
  if (!by_next && !signed_by(leaf, authority.get()))
    return FailedPrecondition("the certificate is not signed by this authority");
  return OkStatus();
}

Result<std::string> PemToDer(const std::string& certificate_pem) {
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr certificate, CertificateFromPem(certificate_pem));
  const OpenSslErrors errors;
  const int size = i2d_X509(certificate.get(), nullptr);
  if (size <= 0) return errors.Take(StatusCode::kInternal, "encode a certificate");
  std::string der(static_cast<std::size_t>(size), '\0');
  auto* out = reinterpret_cast<unsigned char*>(der.data());
  i2d_X509(certificate.get(), &out);
  return der;
}

Result<std::string> DerToPem(const std::string& certificate_der) {
  const OpenSslErrors errors;
  const auto* begin = reinterpret_cast<const unsigned char*>(certificate_der.data());
  const unsigned char* next = begin;
  const X509Ptr certificate(d2i_X509(nullptr, &next, static_cast<long>(certificate_der.size())));
  if (!certificate || next != begin + certificate_der.size())
    return InvalidArgument("the bytes are not one certificate");
  return ToPem(certificate.get());
}

}  // namespace muster
