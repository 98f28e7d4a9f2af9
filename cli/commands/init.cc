// init: creates the cluster's certificate authority, the one for users who log in, and credentials
// for the coordinator, an administrator and a scraper. Reads and writes files below DIR/security,
// without a coordinator.

#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/base/wall_time.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"
#include "common/security/issued_register.h"
#include "common/security/revocation.h"
#include "common/security/user_authority.h"

namespace muster::verbs {
namespace {

constexpr char kDefaultCluster[] = "muster";

// Credentials that init creates.
struct Member {
  std::string dir;
  Credentials credentials;
  bool made = false;  // by this run
};

bool IsThere(const std::string& path) {
  std::error_code error;
  return std::filesystem::symlink_status(path, error).type() !=
         std::filesystem::file_type::not_found;
}

// "node/n7, admin/admin and 3 more".
std::string Names(const std::vector<CertificateInfo>& certificates) {
  std::vector<std::string> names;
  for (const CertificateInfo& certificate : certificates)
    names.push_back(std::string(RoleWord(certificate.identity.role)) + "/" +
                    certificate.identity.name);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  std::string text;
  const std::size_t shown = std::min<std::size_t>(names.size(), 5);
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  return shown == names.size() ? text
                               : text + " and " + std::to_string(names.size() - shown) + " more";
}

Status CheckMayReplace(const SecurityPaths& paths, const std::string& dir, std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(auto certificates, ReadIssued(paths.IssuedCertificates()));
  MUSTER_ASSIGN_OR_RETURN(const auto revocations, LoadRevocations(paths.RevokedCertificates()));
  std::erase_if(certificates, [&](const CertificateInfo& certificate) {
    return certificate.not_after_ms <= now_ms || !revocations.Check(certificate).ok();
  });
  if (certificates.empty()) return OkStatus();
  return FailedPrecondition("the authority in " + paths.dir + " has " +
                            std::to_string(certificates.size()) + " valid certificates (" +
                            Names(certificates) +
                            "); a coordinator with a new authority rejects them\n  next: muster "
                            "init --force --yes --dir " +
                            ShellWord(dir));
}

// The old key may still be needed, so it is moved, not deleted.
Result<std::string> MoveAside(const SecurityPaths& paths, std::int64_t now_ms) {
  const std::string aside = paths.dir + ".replaced-" + std::to_string(now_ms);
  if (::rename(paths.dir.c_str(), aside.c_str()) != 0)
    return ErrnoStatus(errno, "rename " + paths.dir + " to " + aside);
  return aside;
}

Result<Member> Ensure(const CertificateAuthority& authority, Role role, const std::string& dir,
                      const std::string& revocations, std::int64_t now_ms) {
  auto there = LoadCredentials(dir);
  if (there.ok() && there->ca_pem != authority.certificate_pem())
    return FailedPrecondition("credentials in " + dir +
                              " belong to another authority; move them away and run muster init "
                              "again");
  if (there.ok()) return Member{dir, *std::move(there), false};
  if (there.status().code() != StatusCode::kNotFound) return there.status();
  const Identity identity{role, std::string(RoleWord(role)), authority.cluster()};
  MUSTER_RETURN_IF_ERROR(Readmit(revocations, identity, now_ms));
  MUSTER_ASSIGN_OR_RETURN(const IssuedCertificate issued,
                          authority.Issue(identity, DefaultLifetime(role), now_ms));
  MUSTER_RETURN_IF_ERROR(
      WriteCredentials(dir, {authority.certificate_pem(), issued.certificate_pem, issued.key_pem}));
  MUSTER_ASSIGN_OR_RETURN(Credentials made, LoadCredentials(dir));
  return Member{dir, std::move(made), true};
}

Json InitJson(const CertificateAuthority& authority, const SecurityPaths& paths, bool created,
              const std::string& aside, const std::vector<Member>& members, bool users_created) {
  Json json = {{"cluster", authority.cluster()},
               {"dir", paths.dir},
               {"created", created},
               {"fingerprint", authority.info().fingerprint},
               {"expires", IsoTime(authority.info().not_after_ms)},
               {"credentials", Json::array()},
               {"user_authority", {{"dir", paths.UserAuthority()}, {"created", users_created}}}};
  if (!aside.empty()) json["replaced"] = aside;
  for (const Member& member : members)
    json["credentials"].push_back({{"role", RoleWord(member.credentials.identity.role)},
                                   {"name", member.credentials.identity.name},
                                   {"dir", member.dir},
                                   {"serial", member.credentials.serial},
                                   {"expires", IsoTime(member.credentials.not_after_ms)},
                                   {"created", member.made}});
  return json;
}

void PrintForPeople(CommandContext& context, const CertificateAuthority& authority,
                    const SecurityPaths& paths, bool created, const std::string& aside,
                    const std::vector<Member>& members) {
  std::ostream& out = context.terminal.out;
  if (!aside.empty()) out << "Moved the previous certificate authority to " << aside << ".\n";
  out << (created ? "Created" : "Found") << " the certificate authority of cluster "
      << authority.cluster() << " in " << paths.dir << ", valid until "
      << UtcTime(authority.info().not_after_ms) << ".\n"
      << "Fingerprint (SHA-256): " << authority.info().fingerprint << ".\n\n";
  Table table({"CREDENTIALS", "EXPIRES", "DIRECTORY"});
  for (const Member& member : members)
    table.Add({std::string(RoleWord(member.credentials.identity.role)) + (member.made ? "" : " *"),
               UtcTime(member.credentials.not_after_ms), member.dir});
  table.Print(out, context.terminal.color);
  const bool some_were_there = std::any_of(members.begin(), members.end(),
                                           [](const Member& member) { return !member.made; });
  const std::string dir = ShellWord(context.dir());
  out << (some_were_there ? "* existed before and is unchanged\n" : "") << "\nNext:\n"
      << "  muster-coordinator --dir " << dir << " --tls-listen IP:PORT --join-listen IP:PORT\n"
      << "  muster certs join-token --dir " << dir << " --node NODE\n"
      << "  muster --coordinator IP:PORT --tls " << ShellWord(paths.AdminCredentials())
      << " nodes\n";
}

Result<CertificateAuthority> OpenOrCreate(const SecurityPaths& paths, const std::string& cluster,
                                          Duration lifetime, std::int64_t now_ms, bool* created) {
  auto there = CertificateAuthority::Open(paths.dir);
  *created = there.status().code() == StatusCode::kNotFound;
  if (*created)
    return CertificateAuthority::Create(paths.dir, cluster.empty() ? kDefaultCluster : cluster,
                                        now_ms, lifetime);
  if (there.ok() && !cluster.empty() && cluster != there->cluster())
    return AlreadyExists("the authority in " + paths.dir + " belongs to cluster " +
                         there->cluster() + ", not " + cluster + "; select another --dir");
  return there;
}

}  // namespace

struct Init {
  static constexpr char kName[] = "init";
  static constexpr char kSummary[] = "Create the cluster's certificate authority and credentials";

  std::string cluster;
  Duration lifetime = kAuthorityLifetime;
  bool force = false;
  bool yes = false;

  void AddFlags(Flags& flags) {
    flags.Add("--cluster NAME", cluster, "Cluster name [default: muster]");
    flags.Add("--lifetime DURATION", lifetime, "Lifetime of the certificate authority");
    flags.Add("--force", force, "Replace an existing authority, and keep its files");
    flags.Add("-y,--yes", yes, "With --force: replace it although its certificates are valid");
  }

  CommandResult Run(CommandContext& context) const {
    const SecurityPaths paths = context.client.paths().Security();
    const std::int64_t now_ms = SystemClock().UnixMillis();
    std::string aside;
    if (force && IsThere(paths.AuthorityCertificate())) {
      if (!yes) MUSTER_RETURN_IF_ERROR(CheckMayReplace(paths, context.dir(), now_ms));
      MUSTER_ASSIGN_OR_RETURN(aside, MoveAside(paths, now_ms));
    }
    bool created = false;
    MUSTER_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                            OpenOrCreate(paths, cluster, lifetime, now_ms, &created));
    std::vector<Member> members;
    const std::pair<Role, std::string> kFirst[] = {
        {Role::kCoordinator, paths.CoordinatorCredentials()},
        {Role::kAdmin, paths.AdminCredentials()},
        {Role::kScraper, paths.ScraperCredentials()}};
    for (const auto& [role, dir] : kFirst) {
      MUSTER_ASSIGN_OR_RETURN(Member member,
                              Ensure(authority, role, dir, paths.RevokedCertificates(), now_ms));
      members.push_back(std::move(member));
    }
    MUSTER_ASSIGN_OR_RETURN(const bool users_created,
                            UserAuthority::Ensure(authority, paths.UserAuthority(), now_ms));
    const Json json = InitJson(authority, paths, created, aside, members, users_created);
    if (PrintStructured(context.terminal.out, context.output, json, "dir")) return kExitSuccess;
    PrintForPeople(context, authority, paths, created, aside, members);
    if (users_created && !created)
      context.terminal.out << "\nUsers can log in once the coordinator is started again "
                              "(muster login).\n";
    return kExitSuccess;
  }
};

template void AddVerb<Init>(CommandLine& line);

}  // namespace muster::verbs
