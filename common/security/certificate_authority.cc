#include "common/security/certificate_authority.h"

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "common/base/cluster_paths.h"
#include "common/base/wall_time.h"
#include "common/security/certificate_builder.h"
#include "common/security/certificate_request.h"
#include "common/security/issued_register.h"
#include "common/security/pem.h"
#include "common/security/private_files.h"

namespace muster {
namespace {

constexpr Duration kShortestLifetime = std::chrono::minutes(1);

std::int64_t Millis(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

// Certificates have whole seconds.
std::int64_t WholeSeconds(std::int64_t ms) { return ms / 1000 * 1000; }

Status CheckNothingThere(const SecurityPaths& paths) {
  for (const std::string& path : {paths.AuthorityCertificate(), paths.AuthorityKey()}) {
    std::error_code error;
    if (std::filesystem::symlink_status(path, error).type() !=
        std::filesystem::file_type::not_found)
      return AlreadyExists(path + " is there already: an authority is not overwritten");
  }
  return OkStatus();
}

}  // namespace

struct CertificateAuthority::Keys {
  X509Ptr certificate;
  KeyPtr key;

  // The certificate for a public key.
  Result<std::string> Sign(EVP_PKEY* public_key, const Identity& identity,
                           const Validity& validity) const;
};

Result<std::string> CertificateAuthority::Keys::Sign(EVP_PKEY* public_key, const Identity& identity,
                                                     const Validity& validity) const {
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr made, BuildCertificate(public_key, identity, validity,
                                                               certificate.get(), key.get()));
  return ToPem(made.get());
}

namespace {

// From when to when a certificate issued now is good.
Result<Validity> ValidityFor(const Identity& identity, Duration lifetime,
                             const AuthorityInfo& authority, std::int64_t now_ms) {
  MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
  if (identity.cluster != authority.cluster)
    return InvalidArgument("the authority of cluster " + authority.cluster + " signs nothing for " +
                           IdentityUri(identity));
  if (lifetime < kShortestLifetime || lifetime > kAuthorityLifetime)
    return InvalidArgument("a certificate's lifetime is between a minute and ten years");
  if (now_ms < authority.not_before_ms || now_ms >= authority.not_after_ms)
    return FailedPrecondition(
        "the cluster's authority is valid from " + UtcTime(authority.not_before_ms) + " to " +
        UtcTime(authority.not_after_ms) + " and signs nothing at " + UtcTime(now_ms) +
        "; set the machine's clock, or make a new authority with muster init --force --yes");
  const std::int64_t issued = WholeSeconds(now_ms);
  return Validity{issued - Millis(kClockSkew),
                  std::min(issued + WholeSeconds(Millis(lifetime)), authority.not_after_ms)};
}

}  // namespace

CertificateAuthority::CertificateAuthority(std::string dir, std::string certificate_pem,
                                           AuthorityInfo info, std::unique_ptr<Keys> keys)
    : dir_(std::move(dir)),
      certificate_pem_(std::move(certificate_pem)),
      info_(std::move(info)),
      keys_(std::move(keys)) {}
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;
CertificateAuthority& CertificateAuthority::operator=(CertificateAuthority&&) noexcept = default;
CertificateAuthority::~CertificateAuthority() = default;

Result<CertificateAuthority> CertificateAuthority::Create(const std::string& dir,
                                                          const std::string& cluster,
                                                          std::int64_t now_ms, Duration lifetime) {
  MUSTER_RETURN_IF_ERROR(CheckName("cluster name", cluster));
  if (lifetime < kShortestLifetime || lifetime > kAuthorityLifetime)
    return InvalidArgument("an authority's lifetime is between a minute and ten years");
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(dir));
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir));
  const SecurityPaths paths{dir};
  MUSTER_RETURN_IF_ERROR(CheckNothingThere(paths));
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  const std::int64_t begin = WholeSeconds(now_ms);
  const Validity validity{begin - Millis(kClockSkew), begin + WholeSeconds(Millis(lifetime))};
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr certificate, BuildAuthority(key.get(), cluster, validity));
  MUSTER_ASSIGN_OR_RETURN(const std::string key_pem, ToPem(key.get()));
  MUSTER_ASSIGN_OR_RETURN(const std::string certificate_pem, ToPem(certificate.get()));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.AuthorityKey(), key_pem, Privacy::kSecret));
  const Status written =
      WritePrivateFile(paths.AuthorityCertificate(), certificate_pem, Privacy::kTrusted);
  if (!written.ok()) {
    // No client has seen a certificate of this key: without one it only blocks a second try.
    std::error_code ignored;
    std::filesystem::remove(paths.AuthorityKey(), ignored);
    return written;
  }
  return Open(dir);
}

Result<CertificateAuthority> CertificateAuthority::Open(const std::string& dir) {
  const SecurityPaths paths{dir};
  const auto certificate_pem = ReadPrivateFile(paths.AuthorityCertificate(), Privacy::kTrusted);
  if (certificate_pem.status().code() == StatusCode::kNotFound)
    return NotFound("there is no certificate authority in " + dir +
                    "; make one with muster init --dir DIR");
  if (!certificate_pem.ok()) return certificate_pem.status();
  MUSTER_RETURN_IF_ERROR(CheckPrivateDirectory(dir));
  MUSTER_ASSIGN_OR_RETURN(const std::string key_pem,
                          ReadPrivateFile(paths.AuthorityKey(), Privacy::kSecret));
  const auto info = ReadAuthority(*certificate_pem);
  if (!info.ok()) return info.status().WithContext(paths.AuthorityCertificate());
  auto keys = std::make_unique<Keys>();
  MUSTER_ASSIGN_OR_RETURN(keys->certificate, CertificateFromPem(*certificate_pem));
  auto key = PrivateKeyFromPem(key_pem);
  if (!key.ok()) return key.status().WithContext(paths.AuthorityKey());
  keys->key = *std::move(key);
  const OpenSslErrors errors;
  if (X509_check_private_key(keys->certificate.get(), keys->key.get()) != 1)
    return FailedPrecondition(paths.AuthorityKey() + " is not the key of " +
                              paths.AuthorityCertificate() +
                              "; put the two back from the same backup");
  return CertificateAuthority(dir, *certificate_pem, *info, std::move(keys));
}

Result<IssuedCertificate> CertificateAuthority::Issue(const Identity& identity, Duration lifetime,
                                                      std::int64_t now_ms) const {
  MUSTER_ASSIGN_OR_RETURN(const Validity validity, ValidityFor(identity, lifetime, info_, now_ms));
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  IssuedCertificate issued;
  MUSTER_ASSIGN_OR_RETURN(issued.key_pem, ToPem(key.get()));
  MUSTER_ASSIGN_OR_RETURN(issued.certificate_pem, keys_->Sign(key.get(), identity, validity));
  MUSTER_RETURN_IF_ERROR(Record({&issued.certificate_pem, 1}, now_ms));
  return issued;
}

Result<std::string> CertificateAuthority::SignUnrecorded(const std::string& csr_pem,
                                                         const Identity& identity,
                                                         Duration lifetime,
                                                         std::int64_t now_ms) const {
  MUSTER_RETURN_IF_ERROR(CheckCertificateRequest(csr_pem));
  MUSTER_ASSIGN_OR_RETURN(const Validity validity, ValidityFor(identity, lifetime, info_, now_ms));
  MUSTER_ASSIGN_OR_RETURN(const X509RequestPtr request, RequestFromPem(csr_pem));
  return keys_->Sign(X509_REQ_get0_pubkey(request.get()), identity, validity);
}

Result<CertificateAuthority::UserAuthorityFiles> CertificateAuthority::MakeUserAuthority(
    std::int64_t now_ms) const {
  const Validity validity{std::max(WholeSeconds(now_ms) - Millis(kClockSkew), info_.not_before_ms),
                          info_.not_after_ms};
  MUSTER_ASSIGN_OR_RETURN(const KeyPtr key, GenerateKey());
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr root,
                          BuildAuthority(keys_->key.get(), info_.cluster, validity, 1));
  MUSTER_ASSIGN_OR_RETURN(
      const X509Ptr certificate,
      BuildUserAuthority(key.get(), info_.cluster, validity, root.get(), keys_->key.get()));
  UserAuthorityFiles files;
  MUSTER_ASSIGN_OR_RETURN(files.root_pem, ToPem(root.get()));
  MUSTER_ASSIGN_OR_RETURN(files.certificate_pem, ToPem(certificate.get()));
  MUSTER_ASSIGN_OR_RETURN(files.key_pem, ToPem(key.get()));
  return files;
}

Status CertificateAuthority::CheckInForce() const {
  const std::string path = SecurityPaths{dir_}.AuthorityCertificate();
  MUSTER_ASSIGN_OR_RETURN(const std::string pem, ReadPrivateFile(path, Privacy::kTrusted));
  const Result<AuthorityInfo> found = ReadAuthority(pem);
  if (!found.ok()) return found.status().WithContext(path);
  if (found->fingerprint == info_.fingerprint) return OkStatus();
  return FailedPrecondition("the cluster has another authority now (" + found->fingerprint +
                            "); join again, with a token of the new one");
}

Status CertificateAuthority::Record(std::span<const std::string> certificate_pems,
                                    std::int64_t now_ms) const {
  std::vector<CertificateInfo> certificates;
  for (const std::string& pem : certificate_pems) {
    MUSTER_ASSIGN_OR_RETURN(CertificateInfo info, ReadCertificate(pem));
    certificates.push_back(std::move(info));
  }
  return RecordIssued(SecurityPaths{dir_}.IssuedCertificates(), certificates, now_ms);
}

}  // namespace muster
