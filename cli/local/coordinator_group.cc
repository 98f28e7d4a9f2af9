#include "cli/local/coordinator_group.h"

#include <arpa/inet.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "cli/base/exit_code.h"
#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/base/unique_fd.h"
#include "common/process/run_child.h"
#include "common/process/spawn.h"
#include "common/rpc/etcd_version.h"
#include "common/security/credentials.h"
#include "common/security/loopback_credentials.h"
#include "common/security/private_files.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr char kCluster[] = "muster";  // as `muster init` names it
constexpr char kHowToInstall[] =
    "\n  next: apt install etcd-server, or name one that runs with --etcd URL,...";
constexpr char kVersionLabel[] = "etcd Version: ";
// Below those that Linux gives to outgoing connections, so that they are free at the next start.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 10000;
constexpr int kTries = 200;

// The port of "127.0.0.1:PORT".
bool IsFree(const std::string& address) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(SplitAddress(address).port);
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::bind(fd.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0;
}

Result<std::string> ChooseAddress(const std::vector<std::string>& taken) {
  std::random_device random;
  for (int tried = 0; tried < kTries; ++tried) {
    const std::string address =
        "127.0.0.1:" + std::to_string(kFirstPort + static_cast<int>(random() % kPorts));
    if (std::ranges::find(taken, address) == taken.end() && IsFree(address)) return address;
  }
  return ResourceExhausted("no port from " + std::to_string(kFirstPort) +
                           " on is free on 127.0.0.1");
}

Status Refused(const std::string& dir, const std::string& what) {
  return FailedPrecondition("the cluster in " + dir + " " + what +
                            ", which does not change\n  next: choose another directory with --dir, "
                            "or, where its jobs may be lost: muster down --dir " +
                            ShellWord(dir) + " && rm -r " + ShellWord(dir));
}

}  // namespace

void CoordinatorGroup::Find() {
  if (auto found = ReadLocalCoordinators(paths_.dir); found.ok()) local_ = *std::move(found);
}

Status CoordinatorGroup::Prepare(const Wanted& wanted) {
  auto found = ReadLocalCoordinators(paths_.dir);
  if (found.ok()) local_ = *std::move(found);
  if (!found.ok() && found.status().code() != StatusCode::kNotFound) return found.status();
  MUSTER_RETURN_IF_ERROR(CheckKind(wanted));
  if (!exists() && wanted.etcd.empty()) return OkStatus();
  if (!exists()) MUSTER_RETURN_IF_ERROR(Make(wanted));
  if (local_->etcd == kLocalEtcd) MUSTER_RETURN_IF_ERROR(FindEtcd());
  MUSTER_RETURN_IF_ERROR(CheckPorts(wanted.is_stopped));
  MUSTER_RETURN_IF_ERROR(WriteLocalCoordinators(*local_));
  return MakeCredentials();
}

Status CoordinatorGroup::CheckKind(const Wanted& wanted) const {
  if (!exists() && wanted.etcd.empty() && wanted.coordinators > 0)
    return InvalidArgument(
        "--coordinators needs --etcd, which keeps their state: local for one that is started with "
        "them, or the URLs of one that runs");
  if (!exists() && wanted.is_old && !wanted.etcd.empty())
    return Refused(paths_.dir, "has one coordinator, with a database");
  const std::size_t number = static_cast<std::size_t>(wanted.coordinators);
  if (exists() && number != 0 && number != local_->coordinators.size())
    return Refused(paths_.dir,
                   "has " + std::to_string(local_->coordinators.size()) + " coordinators");
  if (exists() && !wanted.etcd.empty() && wanted.etcd != local_->etcd)
    return Refused(paths_.dir, "keeps its state in --etcd " + local_->etcd);
  if (number != 0 && number % 2 == 0)
    return InvalidArgument(
        "--coordinators " + std::to_string(number) +
        ": an etcd of an even number of members outlives no more losses; name 1, 3 or 5");
  return OkStatus();
}

Status CoordinatorGroup::Make(const Wanted& wanted) {
  local_ = LocalCoordinators{.dir = paths_.dir, .etcd = wanted.etcd};
  std::vector<std::string> taken;
  for (int i = 0; i < std::max(wanted.coordinators, 1); ++i) {
    for (auto* list : {&local_->coordinators, &local_->etcd_clients, &local_->etcd_peers}) {
      if (list != &local_->coordinators && wanted.etcd != kLocalEtcd) continue;
      MUSTER_ASSIGN_OR_RETURN(const std::string address, ChooseAddress(taken));
      list->push_back(address);
      taken.push_back(address);
    }
  }
  return OkStatus();
}

Status CoordinatorGroup::FindEtcd() {
  const char* const path = std::getenv("PATH");
  const auto found = FindProgram("etcd", path != nullptr ? path : "", "");
  if (!found.ok())
    return NotFound(std::string("could not find the program etcd in PATH") + kHowToInstall);
  MUSTER_ASSIGN_OR_RETURN(
      const ChildOutcome outcome,
      RunChild({.spawn = {.argv = {*found, "--version"}, .environment = OwnEnvironment()}}));
  const std::size_t label = outcome.output.find(kVersionLabel);
  if (!outcome.ok() || label == std::string::npos)
    return FailedPrecondition(*found + " --version does not say a version: " + outcome.Describe() +
                              kHowToInstall);
  const std::size_t begin = label + std::string(kVersionLabel).size();
  const std::string version =
      outcome.output.substr(begin, outcome.output.find_first_of(" \n", begin) - begin);
  const Status status =
      CheckEtcdVersion(version, std::getenv("MUSTER_ALLOW_UNSAFE_ETCD") != nullptr);
  if (!status.ok()) return FailedPrecondition(*found + ": " + status.message() + kHowToInstall);
  etcd_program_ = *found;
  return OkStatus();
}

// Programs that know an address run on where a part of the cluster runs, and what etcd has written
// of its members never changes; the others move to another port where theirs was taken.
Status CoordinatorGroup::CheckPorts(bool is_stopped) {
  bool any_member = false;
  for (std::size_t i = 0; i < local_->etcd_peers.size(); ++i) {
    const bool runs = Runs(local_->MemberName(i));
    any_member |= runs;
    if (!runs && !IsFree(local_->etcd_peers[i]))
      return FailedPrecondition(
          "another program uses " + local_->etcd_peers[i] + ", where " + local_->MemberName(i) +
          " of this cluster meets the other members\n  next: ss -tlnp 'sport = :" +
          std::to_string(SplitAddress(local_->etcd_peers[i]).port) + "'");
  }
  if (!is_stopped || any_member) return OkStatus();
  for (auto* list : {&local_->coordinators, &local_->etcd_clients}) {
    for (std::string& address : *list) {
      if (IsFree(address)) continue;
      std::vector<std::string> taken = local_->coordinators;
      taken.insert(taken.end(), local_->etcd_clients.begin(), local_->etcd_clients.end());
      taken.insert(taken.end(), local_->etcd_peers.begin(), local_->etcd_peers.end());
      MUSTER_ASSIGN_OR_RETURN(address, ChooseAddress(taken));
    }
  }
  return OkStatus();
}

bool CoordinatorGroup::Runs(const std::string& member) const {
  const auto running = ProcessesOfDirectory(local_->EtcdDir() + "/" + member);
  return std::ranges::any_of(running, [](const auto& one) { return one.program == "etcd"; });
}

Status CoordinatorGroup::Issue(Role role, const std::string& name, const std::string& dir) const {
  const std::int64_t now_ms = SystemClock().UnixMillis();
  const auto there = LoadCredentials(dir);
  if (there.ok() && there->ca_pem == authority_->certificate_pem() && now_ms < RenewalDueMs(*there))
    return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(
      const IssuedCertificate issued,
      authority_->Issue({role, name, authority_->cluster()}, DefaultLifetime(role), now_ms));
  return WriteCredentials(dir,
                          {authority_->certificate_pem(), issued.certificate_pem, issued.key_pem});
}

// The step that docs/operations.md has for other machines.
Status CoordinatorGroup::CopySecurity(const SecurityPaths& to) const {
  const SecurityPaths from = paths_.Security();
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(to.dir));
  const std::pair<std::string, std::string> files[] = {
      {from.AuthorityKey(), to.AuthorityKey()},
      {from.AuthorityCertificate(), to.AuthorityCertificate()},
      {from.RevokedCertificates(), to.RevokedCertificates()}};
  for (const auto& [source, target] : files) {
    const auto content = ReadPrivateFile(source, Privacy::kTrusted);
    if (content.status().code() == StatusCode::kNotFound) continue;
    if (!content.ok()) return content.status();
    MUSTER_RETURN_IF_ERROR(WritePrivateFile(target, *content, Privacy::kSecret));
  }
  return OkStatus();
}

Status CoordinatorGroup::MakeCredentials() {
  const SecurityPaths security = paths_.Security();
  const std::int64_t now_ms = SystemClock().UnixMillis();
  auto authority = CertificateAuthority::Open(security.dir);
  if (authority.status().code() == StatusCode::kNotFound)
    authority = CertificateAuthority::Create(security.dir, kCluster, now_ms);
  if (!authority.ok()) return authority.status();
  authority_ = *std::move(authority);
  MUSTER_RETURN_IF_ERROR(Issue(Role::kAdmin, "admin", security.AdminCredentials()));
  for (std::size_t i = 0; i < local_->coordinators.size(); ++i) {
    const SecurityPaths own = local_->PathsOf(i).Security();
    MUSTER_RETURN_IF_ERROR(CopySecurity(own));
    MUSTER_RETURN_IF_ERROR(
        Issue(Role::kCoordinator, local_->CoordinatorName(i), own.CoordinatorCredentials()));
    MUSTER_RETURN_IF_ERROR(MakeDirectories(local_->PathsOf(i).CoordinatorDir(), 0700));
  }
  std::error_code error;
  if (local_->etcd != kLocalEtcd || fs::exists(Certificate(), error)) return OkStatus();
  MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(local_->EtcdDir()));
  MUSTER_ASSIGN_OR_RETURN(const LoopbackCredentials made,
                          MakeLoopbackCredentials("muster", now_ms));
  MUSTER_RETURN_IF_ERROR(WritePrivateFile(Key(), made.key_pem, Privacy::kSecret));
  return WritePrivateFile(Certificate(), made.certificate_pem, Privacy::kTrusted);
}

std::vector<NamedProcess> CoordinatorGroup::Coordinators() const {
  std::vector<NamedProcess> running;
  for (std::size_t i = 0; i < local_->coordinators.size(); ++i)
    if (const auto owner = LockedPidFileOwner(local_->PathsOf(i).CoordinatorPid()))
      running.push_back({*owner, local_->CoordinatorName(i)});
  return running;
}

std::vector<CoordinatorGroup::Missing> CoordinatorGroup::FindMissing(
    const std::string& coordinator_program) const {
  std::vector<Missing> missing;
  for (std::size_t i = 0; i < local_->etcd_clients.size(); ++i) {
    const std::string name = local_->MemberName(i);
    if (!Runs(name))
      missing.push_back({name, MemberCommand(i), local_->EtcdDir() + "/" + name + ".log"});
  }
  for (std::size_t i = 0; i < local_->coordinators.size(); ++i) {
    const ClusterPaths paths = local_->PathsOf(i);
    if (LockedPidFileOwner(paths.CoordinatorPid())) continue;
    std::vector<std::string> argv = CoordinatorCommand(i);
    argv.insert(argv.begin(), coordinator_program);
    missing.push_back({local_->CoordinatorName(i), std::move(argv), paths.CoordinatorLog()});
  }
  return missing;
}

// All that is between members, and between them and coordinators, needs the key in the directory:
// without it every user of this machine could write the state.
std::vector<std::string> CoordinatorGroup::MemberCommand(std::size_t index) const {
  const std::string name = local_->MemberName(index);
  const std::string client = Url(local_->etcd_clients[index]),
                    peer = Url(local_->etcd_peers[index]);
  std::string members;
  for (std::size_t i = 0; i < local_->etcd_peers.size(); ++i)
    members += (i == 0 ? "" : ",") + local_->MemberName(i) + "=" + Url(local_->etcd_peers[i]);
  return {etcd_program_,
          "--name",
          name,
          "--data-dir",
          local_->EtcdDir() + "/" + name,
          "--listen-client-urls",
          client,
          "--advertise-client-urls",
          client,
          "--listen-peer-urls",
          peer,
          "--initial-advertise-peer-urls",
          peer,
          "--initial-cluster",
          members,
          "--client-cert-auth",
          "--trusted-ca-file",
          Certificate(),
          "--cert-file",
          Certificate(),
          "--key-file",
          Key(),
          "--peer-client-cert-auth",
          "--peer-trusted-ca-file",
          Certificate(),
          "--peer-cert-file",
          Certificate(),
          "--peer-key-file",
          Key(),
          "--logger",
          "zap",
          "--log-outputs",
          "stderr",
          "--log-level",
          "warn"};
}

std::vector<std::string> CoordinatorGroup::CoordinatorCommand(std::size_t index) const {
  std::string urls = local_->etcd;
  if (urls == kLocalEtcd) {
    urls.clear();
    for (const std::string& client : local_->etcd_clients)
      urls += (urls.empty() ? "" : ",") + Url(client);
  }
  std::vector<std::string> argv = {"--dir",          local_->PathsOf(index).dir,
                                   "--tls-listen",   local_->coordinators[index],
                                   "--secret-keys",  paths_.SecretKeys(),
                                   "--cluster-name", fs::path(paths_.dir).filename().string(),
                                   "--etcd",         urls};
  if (local_->etcd == kLocalEtcd)
    argv.insert(argv.end(),
                {"--etcd-ca", Certificate(), "--etcd-cert", Certificate(), "--etcd-key", Key()});
  return argv;
}

}  // namespace muster
