#include "coordinator/service/certificate_rotator.h"

#include <utility>
#include <vector>

#include "common/base/backoff.h"
#include "common/base/clock.h"
#include "common/base/cluster_paths.h"
#include "common/security/credentials.h"
#include "common/security/private_files.h"
#include "common/telemetry/log.h"

namespace muster {

// The thread's input and its results; the loop reads it between two looks.
struct CertificateRotator::PollResult {
  PollResult(Authenticator& authenticator_in, CertificateRotatorOptions options_in)
      : authenticator(authenticator_in), options(std::move(options_in)) {
    for (const std::string& path : options.revocations) revocations.emplace_back(path);
  }

  void Run() {
    status = RefreshRevocations();
    if (another_authority.ok()) another_authority = CheckAuthority();
    if (!another_authority.ok()) return;
    if (const Status renewed = RenewIfDue(); status.ok()) status = renewed;
  }

  // Clients of the initial authority are unknown to another one. Both places count: `muster init
  // --force` replaces both, and the signing authority must be the trusted one.
  Status CheckAuthority() {
    for (const std::string& dir : {options.credentials_dir, options.authority_dir}) {
      if (dir.empty()) continue;
      const std::string path = SecurityPaths{dir}.AuthorityCertificate();
      // A file that is missing or unreadable for a moment, because it is being replaced, is not a
      // change.
      const Result<std::string> pem = ReadPrivateFile(path, Privacy::kTrusted);
      const Result<AuthorityInfo> found = pem.ok() ? ReadAuthority(*pem) : pem.status();
      if (!found.ok()) continue;
      if (authority.empty()) authority = found->fingerprint;
      if (found->fingerprint != authority)
        return FailedPrecondition(
            path + " is the certificate of another authority (" + found->fingerprint +
            ") than the one this coordinator goes by (" + authority +
            "), and it cannot serve two; start it again to serve the new one, and give the nodes "
            "new join tokens");
    }
    return OkStatus();
  }

  // One file that cannot be read must not stop revocations from another.
  Status RefreshRevocations() {
    Status outcome;
    bool changed = false;
    std::vector<Revocation> all;
    for (RevocationFile& file : revocations) {
      const Result<bool> refreshed = file.Refresh();
      if (!refreshed.ok()) outcome = refreshed.status();
      changed = changed || (refreshed.ok() && *refreshed);
      const std::vector<Revocation>& entries = file.list().entries();
      all.insert(all.end(), entries.begin(), entries.end());
    }
    if (changed) authenticator.SetRevocations(RevocationList(std::move(all)));
    return outcome;
  }

  Status RenewIfDue() {
    MUSTER_ASSIGN_OR_RETURN(const Credentials credentials,
                            LoadCredentials(options.credentials_dir));
    not_after_ms = credentials.not_after_ms;
    // Another process may have renewed. If the file cannot be written, gRPC follows the files
    // themselves.
    (void)KeepServingFile(options.credentials_dir, credentials);
    const TimePoint now = SystemClock().Now();
    const bool due = SystemClock().UnixMillis() >= RenewalDueMs(credentials);
    if (options.authority_dir.empty() || !due || now < retry_at) return OkStatus();
    const Status renewed = Renew(credentials);
    if (renewed.ok()) {
      pauses.Reset();
    } else {
      retry_at = now + pauses.Next();
      ++failed_renewals;
    }
    return renewed;
  }

  Status Renew(const Credentials& credentials) {
    MUSTER_RETURN_IF_ERROR(CheckCanWriteCredentials(options.credentials_dir));
    MUSTER_ASSIGN_OR_RETURN(const CertificateAuthority signer,
                            CertificateAuthority::Open(options.authority_dir));
    const Duration lifetime =
        std::chrono::milliseconds(credentials.not_after_ms - credentials.issued_ms);
    MUSTER_ASSIGN_OR_RETURN(
        const IssuedCertificate next,
        signer.Issue(credentials.identity, lifetime, SystemClock().UnixMillis()));
    MUSTER_RETURN_IF_ERROR(WriteCredentials(
        options.credentials_dir, {signer.certificate_pem(), next.certificate_pem, next.key_pem}));
    MUSTER_ASSIGN_OR_RETURN(const Credentials renewed, LoadCredentials(options.credentials_dir));
    not_after_ms = renewed.not_after_ms;
    (void)KeepServingFile(options.credentials_dir, renewed);
    Log().info("the certificate of {} was renewed", IdentityUri(renewed.identity));
    return OkStatus();
  }

  Authenticator& authenticator;
  const CertificateRotatorOptions options;
  std::vector<RevocationFile> revocations;
  std::string authority;  // its fingerprint, as found first
  Status status;
  Status another_authority;
  std::int64_t not_after_ms = 0;
  std::uint64_t failed_renewals = 0;
  Backoff pauses{std::chrono::seconds(1), std::chrono::minutes(5)};  // after failed renewals
  TimePoint retry_at = TimePoint::min();
};

CertificateRotator::CertificateRotator(EventLoop& loop, Authenticator& authenticator,
                                       CertificateRotatorOptions options)
    : loop_(loop),
      look_(std::make_shared<PollResult>(authenticator, std::move(options))),
      timer_(loop) {}

CertificateRotator::~CertificateRotator() { *alive_ = false; }

Status CertificateRotator::Start() {
  // gRPC reads only the three files.
  MUSTER_RETURN_IF_ERROR(MendCredentials(look_->options.credentials_dir));
  look_->Run();
  MUSTER_RETURN_IF_ERROR(look_->another_authority);
  MUSTER_RETURN_IF_ERROR(look_->status);
  not_after_ms_ = look_->not_after_ms;
  Schedule();
  return OkStatus();
}

void CertificateRotator::Schedule() {
  timer_.Start(look_->options.interval, [this] {
    const auto work = [this, look = look_, alive = alive_] {
      look->Run();
      loop_.Post([this, look, alive] {
        if (*alive) Report(*look);
      });
    };
    // One look at a time: the next is scheduled when this one has reported.
    if (!pool_.TrySubmit(work)) Schedule();
  });
}

void CertificateRotator::Report(const PollResult& look) {
  if (!look.another_authority.ok())
    return look.options.on_another_authority(look.another_authority);
  not_after_ms_ = look.not_after_ms;
  failed_renewals_ = look.failed_renewals;
  if (!look.status.ok() && look.status.message() != last_problem_)
    Log().error("credentials: {}; what is known stays in force", look.status.message());
  last_problem_ = look.status.message();
  if (look.options.on_look) look.options.on_look();
  Schedule();
}

}  // namespace muster
