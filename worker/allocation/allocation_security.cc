#include "worker/allocation/allocation_security.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "common/base/clock.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"

namespace muster::worker {
namespace {

namespace fs = std::filesystem;

// Longer than allocations last.
constexpr Duration kLifetime = std::chrono::hours(24 * 60);

// It is created under another name and renamed as a whole, which fails if another one already
// exists.
Status MakeAuthority(const AllocationSecurity& security) {
  std::string beside = security.security_dir + ".XXXXXX";
  if (::mkdtemp(beside.data()) == nullptr) return ErrnoStatus(errno, "make " + beside);
  const auto made = CertificateAuthority::Create(beside, security.allocation,
                                                 SystemClock().UnixMillis(), kLifetime);
  Status status = made.status();
  if (status.ok() && ::rename(beside.c_str(), security.security_dir.c_str()) != 0 &&
      errno != EEXIST && errno != ENOTEMPTY)
    status = ErrnoStatus(errno, "rename " + beside + " to " + security.security_dir);
  std::error_code ignored;
  fs::remove_all(beside, ignored);
  return status;
}

Status IssueTo(const CertificateAuthority& authority, const std::string& dir, Role role,
               const std::string& node) {
  MUSTER_ASSIGN_OR_RETURN(
      const IssuedCertificate issued,
      authority.Issue({role, node, authority.cluster()}, kLifetime, SystemClock().UnixMillis()));
  return WriteCredentials(dir,
                          {authority.certificate_pem(), issued.certificate_pem, issued.key_pem});
}

}  // namespace

Status MakeAllocationCredentials(const AllocationSecurity& security) {
  auto authority = CertificateAuthority::Open(security.security_dir);
  if (!authority.ok() && authority.status().code() == StatusCode::kNotFound) {
    MUSTER_RETURN_IF_ERROR(MakeAuthority(security));
    authority = CertificateAuthority::Open(security.security_dir);
  }
  if (!authority.ok()) return authority.status();
  MUSTER_RETURN_IF_ERROR(
      IssueTo(*authority, NodeCredentials(security.local_dir), Role::kNode, security.node));
  return IssueTo(*authority, CoordinatorCredentials(security.local_dir), Role::kCoordinator,
                 security.node);
}

void RemoveAllocationAuthority(const std::string& security_dir) {
  std::error_code ignored;
  fs::remove_all(security_dir, ignored);
}

}  // namespace muster::worker
