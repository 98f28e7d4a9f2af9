#include "common/security/user_authority.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/wall_time.h"
#include "common/security/certificate_builder.h"
#include "common/security/certificate_request.h"
#include "common/security/pem.h"
#include "common/security/private_files.h"

namespace muster {
namespace {

constexpr Duration kShortestLifetime = std::chrono::minutes(1);

struct Paths {
  explicit Paths(const std::string& dir)
      : root(UserAuthority::RootPath(dir)), cert(dir + "/cert.pem"), key(dir + "/key.pem") {}
  const std::string root;
  const std::string cert;
  const std::string key;
};

std::int64_t WholeSeconds(std::int64_t ms) { return ms / 1000 * 1000; }
std::int64_t Millis(Duration duration) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
}

}  // namespace

struct UserAuthority::Keys {
  X509Ptr certificate;
  KeyPtr key;
};

UserAuthority::UserAuthority(std::string certificate_pem, AuthorityInfo info,
                             std::unique_ptr<Keys> keys)
    : certificate_pem_(std::move(certificate_pem)),
      info_(std::move(info)),
      keys_(std::move(keys)) {}
UserAuthority::UserAuthority(UserAuthority&&) noexcept = default;
UserAuthority& UserAuthority::operator=(UserAuthority&&) noexcept = default;
UserAuthority::~UserAuthority() = default;

// The certificate comes last: without it there is no authority, and a second try starts over.
Result<bool> UserAuthority::Ensure(const CertificateAuthority& authority, const std::string& dir,
                                   std::int64_t now_ms) {
  const auto there = Open(dir, authority.certificate_pem());
  if (there.ok()) return false;
  if (there.status().code() != StatusCode::kNotFound) return there.status();
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(dir));
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(dir));
  MUSTER_ASSIGN_OR_RETURN(const auto files, authority.MakeUserAuthority(now_ms));
  const Paths paths(dir);
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.key, files.key_pem, Privacy::kSecret));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.root, files.root_pem, Privacy::kTrusted));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(paths.cert, files.certificate_pem, Privacy::kTrusted));
  MUSTER_RETURN_IF_ERROR(Open(dir, authority.certificate_pem()).status());
  return true;
}

Result<UserAuthority> UserAuthority::Open(const std::string& dir, const std::string& ca_pem) {
  const Paths paths(dir);
  MUSTER_ASSIGN_OR_RETURN(const std::string cert_pem,
                          ReadPrivateFile(paths.cert, Privacy::kTrusted));
  MUSTER_ASSIGN_OR_RETURN(const std::string root_pem,
                          ReadPrivateFile(paths.root, Privacy::kTrusted));
  MUSTER_ASSIGN_OR_RETURN(const std::string key_pem, ReadPrivateFile(paths.key, Privacy::kSecret));
  // They differ if they are another authority's, or were put together by hand.
  for (const std::string* root : {&ca_pem, &root_pem})
    if (const Status together = CheckBelongTogether(*root, cert_pem, key_pem); !together.ok())
      return FailedPrecondition("the users' authority in " + dir + ": " + together.message() +
                                "; move the directory away, and run muster init again");
  const auto info = ReadAuthority(cert_pem);
  if (!info.ok()) return info.status().WithContext(paths.cert);
  auto keys = std::make_unique<Keys>();
  MUSTER_ASSIGN_OR_RETURN(keys->certificate, CertificateFromPem(cert_pem));
  MUSTER_ASSIGN_OR_RETURN(keys->key, PrivateKeyFromPem(key_pem));
  return UserAuthority(cert_pem, *info, std::move(keys));
}

Result<std::string> UserAuthority::Sign(const std::string& csr_pem, const std::string& user,
                                        Duration lifetime, std::int64_t now_ms) const {
  MUSTER_RETURN_IF_ERROR(CheckCertificateRequest(csr_pem));
  const Identity identity{Role::kUser, user, info_.cluster};
  MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
  if (lifetime < kShortestLifetime || lifetime > kUserCertificateLifetime)
    return InvalidArgument("the certificate of a login lasts between a minute and an hour");
  if (now_ms < info_.not_before_ms || now_ms >= info_.not_after_ms)
    return FailedPrecondition("the users' authority is valid from " + UtcTime(info_.not_before_ms) +
                              " to " + UtcTime(info_.not_after_ms) + " and signs nothing at " +
                              UtcTime(now_ms));
  const std::int64_t issued = WholeSeconds(now_ms);
  const Validity validity{issued - Millis(kClockSkew),
                          std::min(issued + WholeSeconds(Millis(lifetime)), info_.not_after_ms)};
  MUSTER_ASSIGN_OR_RETURN(const X509RequestPtr request, RequestFromPem(csr_pem));
  MUSTER_ASSIGN_OR_RETURN(const X509Ptr made,
                          BuildCertificate(X509_REQ_get0_pubkey(request.get()), identity, validity,
                                           keys_->certificate.get(), keys_->key.get()));
  MUSTER_ASSIGN_OR_RETURN(const std::string leaf, ToPem(made.get()));
  return leaf + certificate_pem_;
}

}  // namespace muster
