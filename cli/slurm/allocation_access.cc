#include "cli/slurm/allocation_access.h"

#include <filesystem>
#include <memory>
#include <utility>

#include "cli/base/temporary_directory.h"
#include "cli/slurm/slurm_job.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr Duration kLifetime = std::chrono::hours(1);
// Well before the end, because new connections need a valid certificate.
constexpr Duration kRenewAfter = std::chrono::minutes(40);

}  // namespace

AllocationAccess::AllocationAccess(std::string state_dir, std::string user)
    : state_dir_(std::move(state_dir)),
      user_(CheckName("user", user).ok() ? std::move(user) : "user"),
      renew_(Deadline::After({})) {}

AllocationAccess::~AllocationAccess() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

Result<RemoteCoordinator> AllocationAccess::Find() {
  const auto leader = ReadLeader(state_dir_);
  if (!leader || leader->grpc.empty())
    return Unavailable("the job has no leading supervisor: " + state_dir_ +
                       "/leader.json does not exist\n  next: muster slurm status");
  MUSTER_ASSIGN_OR_RETURN(std::string credentials, CredentialsFor(*leader));
  return RemoteCoordinator{.address = leader->grpc, .credentials_dir = std::move(credentials)};
}

Result<std::string> AllocationAccess::CredentialsFor(const SlurmLeader& leader) {
  const int run = leader.run;
  if (temporary_.empty()) {
    MUSTER_ASSIGN_OR_RETURN(temporary_, MakeTemporaryDirectory("muster-access-"));
  }
  std::string dir = temporary_ + "/" + std::to_string(run);
  if (issued_run_ == run && !renew_.Expired()) return dir;
  const std::string security =
      state_dir_ + "/" + (leader.keys.empty() ? "security-" + std::to_string(run) : leader.keys);
  const auto authority = CertificateAuthority::Open(security);
  if (authority.status().code() == StatusCode::kNotFound)
    return Unavailable("run " + std::to_string(run) + " of the job ended: " + security +
                       " no longer exists\n  next: muster slurm status");
  if (!authority.ok()) return authority.status();
  MUSTER_ASSIGN_OR_RETURN(const IssuedCertificate issued,
                          authority->Issue({Role::kAdmin, user_, authority->cluster()}, kLifetime,
                                           SystemClock().UnixMillis()));
  MUSTER_RETURN_IF_ERROR(WriteCredentials(
      dir, {authority->certificate_pem(), issued.certificate_pem, issued.key_pem}));
  issued_run_ = run;
  renew_ = Deadline::After(kRenewAfter);
  return dir;
}

FindRemote CoordinatorOfSlurmJob(slurm::SlurmCommands commands, std::string user, std::string job) {
  return
      [commands = std::move(commands), user = std::move(user), job = std::move(job),
       access =
           std::make_shared<std::unique_ptr<AllocationAccess>>()]() -> Result<RemoteCoordinator> {
        if (!*access) {
          std::string state_dir = job;
          if (job.find('/') == std::string::npos) {
            MUSTER_ASSIGN_OR_RETURN(state_dir, StateDirOf(commands, user, job));
          }
          *access = std::make_unique<AllocationAccess>(std::move(state_dir), user);
        }
        return (*access)->Find();
      };
}

}  // namespace muster
