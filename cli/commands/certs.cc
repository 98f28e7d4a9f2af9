// certs: issues and revokes the cluster's certificates and join tokens. Reads and writes files
// below DIR/security, on the machine that has the authority's key; a coordinator there picks
// changes up.

#include <algorithm>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/base/wall_time.h"
#include "common/rpc/endpoint.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"
#include "common/security/encoding.h"
#include "common/security/enrolment.h"
#include "common/security/identity.h"
#include "common/security/issued_register.h"
#include "common/security/join_token.h"
#include "common/security/join_token_register.h"
#include "common/security/private_files.h"
#include "common/security/revocation.h"

namespace muster::verbs {
namespace {

SecurityPaths PathsOf(CommandContext& context) { return context.client.paths().Security(); }

std::int64_t Now() { return SystemClock().UnixMillis(); }

Result<AuthorityInfo> FindAuthority(const SecurityPaths& paths) {
  const auto ca_pem = ReadPrivateFile(paths.AuthorityCertificate(), Privacy::kTrusted);
  if (ca_pem.status().code() == StatusCode::kNotFound)
    return NotFound("there is no certificate authority in " + paths.dir +
                    "; run this command on the machine where muster init was run, or run muster "
                    "init");
  if (!ca_pem.ok()) return ca_pem.status();
  MUSTER_RETURN_IF_ERROR(CheckPrivateDirectory(paths.dir));
  return ReadAuthority(*ca_pem);
}

// --out, or where `init` writes the credentials of the role.
Result<std::string> DirectoryOf(const std::string& out, const Identity& identity,
                                const SecurityPaths& paths) {
  if (!out.empty()) return out;
  if (identity.name == RoleWord(identity.role)) {
    if (identity.role == Role::kCoordinator) return paths.CoordinatorCredentials();
    if (identity.role == Role::kAdmin) return paths.AdminCredentials();
    if (identity.role == Role::kScraper) return paths.ScraperCredentials();
  }
  return InvalidArgument("--out is required for the credentials of " +
                         std::string(RoleWord(identity.role)) + " " + identity.name);
}

// Renews credentials, but does not overwrite those of another identity.
Status CheckMayWrite(const std::string& dir, const Identity& identity) {
  const auto there = LoadCredentials(dir);
  if (there.status().code() == StatusCode::kNotFound) return OkStatus();
  if (!there.ok()) return there.status();
  if (there->identity == identity) return OkStatus();
  return AlreadyExists(dir + " holds the credentials of " + IdentityUri(there->identity) +
                       "; choose another directory with --out");
}

struct Certificate {
  CertificateInfo info;
  std::string state;  // "good", "expired", "revoked"
};

Result<std::vector<Certificate>> Certificates(const SecurityPaths& paths,
                                              const RevocationList& revocations, bool all,
                                              std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(paths.IssuedCertificates()));
  std::vector<Certificate> certificates;
  for (const CertificateInfo& info : issued) {
    const bool expired = info.not_after_ms <= now_ms;
    if (expired && !all) continue;
    const bool revoked = !revocations.Check(info).ok();
    certificates.push_back({info, expired ? "expired" : revoked ? "revoked" : "good"});
  }
  return certificates;
}

std::string TokenState(const JoinTokenRecord& token, std::int64_t now_ms) {
  if (token.redeemed_ms != 0) return "used by " + token.redeemed_by;
  return token.expires_ms <= now_ms ? "expired" : "good";
}

struct Listing {
  std::vector<Certificate> certificates;
  std::vector<JoinTokenRecord> tokens;
  std::vector<Revocation> revoked;
};

Result<Listing> ReadListing(const SecurityPaths& paths, bool all, std::int64_t now_ms) {
  MUSTER_ASSIGN_OR_RETURN(const AuthorityInfo authority, FindAuthority(paths));
  MUSTER_ASSIGN_OR_RETURN(const auto revocations, LoadRevocations(paths.RevokedCertificates()));
  Listing listing;
  MUSTER_ASSIGN_OR_RETURN(listing.certificates, Certificates(paths, revocations, all, now_ms));
  MUSTER_ASSIGN_OR_RETURN(listing.tokens,
                          JoinTokenRegister(paths.JoinTokens(), authority.cluster).List());
  if (!all)
    std::erase_if(listing.tokens, [&](const JoinTokenRecord& token) {
      return TokenState(token, now_ms) != "good";
    });
  for (const Revocation& entry : revocations.entries())
    if (all || entry.readmitted_ms == 0) listing.revoked.push_back(entry);
  return listing;
}

Json ListingJson(const Listing& listing, std::int64_t now_ms) {
  Json json = {
      {"certificates", Json::array()}, {"tokens", Json::array()}, {"revoked", Json::array()}};
  for (const auto& [info, state] : listing.certificates)
    json["certificates"].push_back({{"serial", info.serial},
                                    {"role", RoleWord(info.identity.role)},
                                    {"name", info.identity.name},
                                    {"issued", IsoTime(info.issued_ms)},
                                    {"expires", IsoTime(info.not_after_ms)},
                                    {"state", state}});
  for (const JoinTokenRecord& token : listing.tokens)
    json["tokens"].push_back({{"id", token.id},
                              {"node", token.node},
                              {"made", IsoTime(token.made_ms)},
                              {"expires", IsoTime(token.expires_ms)},
                              {"state", TokenState(token, now_ms)}});
  for (const Revocation& entry : listing.revoked)
    json["revoked"].push_back({{"serial", entry.serial},
                               {"identity", entry.identity},
                               {"revoked", IsoTime(entry.revoked_ms)},
                               {"reason", entry.reason}});
  return json;
}

void PrintListing(Terminal& terminal, const Listing& listing, std::int64_t now_ms) {
  Table certificates({"SERIAL", "ROLE", "NAME", "ISSUED", "EXPIRES", "STATE"});
  for (const auto& [info, state] : listing.certificates)
    certificates.Add({info.serial, std::string(RoleWord(info.identity.role)), info.identity.name,
                      LocalTime(info.issued_ms), LocalTime(info.not_after_ms), state});
  certificates.Print(terminal.out, terminal.color);
  if (!listing.tokens.empty()) {
    terminal.out << "\n";
    Table tokens({"TOKEN", "NODE", "EXPIRES", "STATE"});
    for (const JoinTokenRecord& token : listing.tokens)
      tokens.Add({token.id, token.node.empty() ? "(any)" : token.node, LocalTime(token.expires_ms),
                  TokenState(token, now_ms)});
    tokens.Print(terminal.out, terminal.color);
  }
  if (listing.revoked.empty()) return;
  terminal.out << "\n";
  Table revoked({"REVOKED", "AT", "REASON"});
  for (const Revocation& entry : listing.revoked)
    revoked.Add({entry.serial.empty() ? entry.identity : entry.serial, LocalTime(entry.revoked_ms),
                 Printable(entry.reason)});
  revoked.Print(terminal.out, terminal.color);
}

// OpenSSL and browsers write serials in capitals, with colons, without leading zeros.
Result<std::string> PlainSerial(const std::string& text) {
  std::string digits;
  for (const char c : text)
    if (c != ':') digits += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (digits.size() < 32) digits.insert(0, 32 - digits.size(), '0');
  if (text.empty() || !IsHex(digits, 32))
    return InvalidArgument(
        "'" + Printable(text) +
        "' is not a serial number of 32 hexadecimal digits\n  next: muster certs list");
  return digits;
}

// A certificate can be missing from the register, for example when a copy of the key signed it, so
// it is revoked all the same; but the name may be mistyped.
void WarnNotRegistered(CommandContext& context, const std::string& what) {
  context.terminal.err << "muster: warning: the register has no " << what
                       << "; muster certs list --all shows what it has\n";
}

// The token with the addresses of the running coordinator. One that listens at every address of its
// host is reached where nodes join.
Invitation InvitationWith(CommandContext& context, const std::string& token,
                          const std::string& join_address) {
  Invitation invitation{.token = token, .join_address = join_address};
  const Result<Endpoint> endpoint = ReadEndpoint(context.client.paths().Endpoint());
  if (!endpoint.ok()) return invitation;
  if (invitation.join_address.empty()) invitation.join_address = endpoint->grpc_join;
  invitation.coordinator = endpoint->grpc_tls;
  const bool everywhere =
      invitation.coordinator.starts_with("0.0.0.0:") || invitation.coordinator.starts_with("[::]:");
  if (!everywhere) return invitation;
  if (invitation.join_address.empty()) return Invitation{.token = token};
  HostPort address = SplitAddress(invitation.coordinator);
  address.host = SplitAddress(invitation.join_address).host;
  invitation.coordinator = JoinAddress(address);
  return invitation;
}

}  // namespace

struct CertsIssue {
  static constexpr char kName[] = "issue";
  static constexpr char kSummary[] = "Issue credentials, or renew existing ones";

  std::string role;
  std::string name;
  std::string out;
  std::optional<Duration> lifetime;

  void AddFlags(Flags& flags) {
    flags.Add("--role ROLE", role, "Role: admin, coordinator, node, scraper, or user").Required();
    flags.Add("--name NAME", name, "Name of the node, person, or script [default: the role]");
    flags.Add("--lifetime DURATION", lifetime,
              "Lifetime [default: node 1d, coordinator 30d, scraper and user 90d, admin 365d]");
    flags.Add("--out DIR", out,
              "Directory for ca.pem, cert.pem, and key.pem [default: DIR/security/ROLE]");
  }

  CommandResult Run(CommandContext& context) const {
    const SecurityPaths paths = PathsOf(context);
    MUSTER_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                            CertificateAuthority::Open(paths.dir));
    MUSTER_ASSIGN_OR_RETURN(const Role parsed, ParseRole(role));
    const Identity identity{parsed, name.empty() ? role : name, authority.cluster()};
    MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
    MUSTER_ASSIGN_OR_RETURN(const std::string dir, DirectoryOf(out, identity, paths));
    MUSTER_RETURN_IF_ERROR(CheckMayWrite(dir, identity));
    // Issuing for a revoked name admits it again.
    MUSTER_RETURN_IF_ERROR(Readmit(paths.RevokedCertificates(), identity, Now()));
    MUSTER_ASSIGN_OR_RETURN(
        const IssuedCertificate issued,
        authority.Issue(identity, lifetime.value_or(DefaultLifetime(parsed)), Now()));
    MUSTER_RETURN_IF_ERROR(WriteCredentials(
        dir, {authority.certificate_pem(), issued.certificate_pem, issued.key_pem}));
    MUSTER_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(issued.certificate_pem));
    const Json json = {{"role", role},
                       {"name", identity.name},
                       {"dir", dir},
                       {"serial", info.serial},
                       {"expires", IsoTime(info.not_after_ms)}};
    if (!PrintStructured(context.terminal.out, context.output, json, "dir"))
      context.terminal.out << "Wrote credentials of " << role << " " << identity.name << " to "
                           << dir << ", valid until " << UtcTime(info.not_after_ms) << ".\n";
    return kExitSuccess;
  }
};

struct CertsJoinToken {
  static constexpr char kName[] = "join-token";
  static constexpr char kSummary[] = "Create a token with which one node joins, once";

  std::string node;
  bool any_node = false;
  Duration expires = kJoinTokenLifetime;
  std::string join_address;

  void AddFlags(Flags& flags) {
    const Flag named = flags.Add("--node NODE", node, "Node name");
    flags.Add("--any-node", any_node, "Admit any node that has not joined").Excludes(named);
    flags.Add("--expires DURATION", expires, "Lifetime of the token");
    flags.Add("--join-address IP:PORT", join_address,
              "Address at which nodes join [default: the running coordinator's]");
  }

  // The invitation alone goes to standard output (common/security/join_token.h).
  CommandResult Run(CommandContext& context) const {
    if (node.empty() == !any_node)
      return InvalidArgument("expected one of --node NODE and --any-node");
    MUSTER_ASSIGN_OR_RETURN(const Enrolment enrolment, Enrolment::Open(PathsOf(context).dir));
    MUSTER_ASSIGN_OR_RETURN(const std::string text, enrolment.MakeToken(node, expires, Now()));
    MUSTER_ASSIGN_OR_RETURN(const JoinToken made, ParseJoinToken(text));
    const Invitation invitation = InvitationWith(context, text, join_address);
    const Json json = {{"token", text},
                       {"invitation", InvitationText(invitation)},
                       {"id", made.id},
                       {"node", node},
                       {"expires", IsoTime(made.expires_ms)}};
    Terminal& terminal = context.terminal;
    if (PrintStructured(terminal.out, context.output, json, "token")) return kExitSuccess;
    const std::string name = node.empty() ? "NODE" : node;
    terminal.out << InvitationText(invitation) << "\n";
    if (invitation.join_address.empty())
      terminal.err << "warning: no coordinator with --join-listen runs in " << context.dir()
                   << ", so the token does not name the address to join; add --join-address "
                      "IP:PORT\n";
    terminal.err << "The token admits " << (node.empty() ? "one new node" : "node " + node)
                 << " once, until " << UtcTime(made.expires_ms)
                 << ". On the node, with the token in "
                 << "a file:\n  muster-worker --dir LOCAL --node " << name
                 << (invitation.coordinator.empty() ? " --coordinator IP:PORT" : "")
                 << " --join FILE\n";
    return kExitSuccess;
  }
};

struct CertsList {
  static constexpr char kName[] = "list";
  static constexpr char kSummary[] = "List certificates, join tokens, and revocations";

  bool all = false;

  void AddFlags(Flags& flags) {
    flags.Add("--all", all, "Include expired certificates and used tokens");
  }

  CommandResult Run(CommandContext& context) const {
    const std::int64_t now_ms = Now();
    MUSTER_ASSIGN_OR_RETURN(const Listing listing, ReadListing(PathsOf(context), all, now_ms));
    const Json json = ListingJson(listing, now_ms);
    // One line or name for each certificate; the whole for the other formats.
    const bool lines =
        context.output == OutputFormat::kName || context.output == OutputFormat::kJsonl;
    if (!PrintStructured(context.terminal.out, context.output, lines ? json["certificates"] : json,
                         "serial"))
      PrintListing(context.terminal, listing, now_ms);
    return kExitSuccess;
  }
};

struct CertsRevoke {
  static constexpr char kName[] = "revoke";
  static constexpr char kSummary[] = "Revoke a node's certificates, one certificate, or a token";

  std::string name;
  std::string role = "node";
  std::string serial;
  std::string token;
  std::string reason;

  void AddFlags(Flags& flags) {
    flags.Add("NODE", name, "Node name, or another name with --role");
    flags.Add("--role ROLE", role, "Role of the name");
    flags.Add("--serial SERIAL", serial, "One certificate, instead of a name");
    flags.Add("--token ID", token, "A join token, instead of a name");
    flags.Add("--reason TEXT", reason, "Reason to show to clients that are rejected");
  }

  CommandResult Run(CommandContext& context) const {
    const int given = !name.empty() + !serial.empty() + !token.empty();
    if (given != 1) return InvalidArgument("expected one of NODE, --serial SERIAL, and --token ID");
    MUSTER_ASSIGN_OR_RETURN(const AuthorityInfo authority, FindAuthority(PathsOf(context)));
    if (!token.empty())
      MUSTER_RETURN_IF_ERROR(RevokeToken(context));
    else if (!serial.empty())
      MUSTER_RETURN_IF_ERROR(RevokeSerial(context));
    else
      MUSTER_RETURN_IF_ERROR(RevokeName(context, authority.cluster));
    return kExitSuccess;
  }

 private:
  Status RevokeToken(CommandContext& context) const {
    MUSTER_RETURN_IF_ERROR(JoinTokenRegister(PathsOf(context).JoinTokens(), "").Withdraw(token));
    context.terminal.out << "Revoked join token " << token << ".\n";
    return OkStatus();
  }

  Status RevokeSerial(CommandContext& context) const {
    const SecurityPaths paths = PathsOf(context);
    MUSTER_ASSIGN_OR_RETURN(const std::string plain, PlainSerial(serial));
    MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(paths.IssuedCertificates()));
    const auto found = std::find_if(issued.begin(), issued.end(), [&](const CertificateInfo& info) {
      return info.serial == plain;
    });
    const bool known = found != issued.end();
    MUSTER_RETURN_IF_ERROR(
        Revoke(paths.RevokedCertificates(), {.serial = plain,
                                             .identity = known ? IdentityUri(found->identity) : "",
                                             .revoked_ms = Now(),
                                             .reason = reason}));
    const std::string owner =
        known ? " of " + std::string(RoleWord(found->identity.role)) + " " + found->identity.name
              : "";
    context.terminal.out << "Revoked certificate " << plain << owner << ".\n";
    if (!known) WarnNotRegistered(context, "certificate with serial " + plain);
    return OkStatus();
  }

  Status RevokeName(CommandContext& context, const std::string& cluster) const {
    const SecurityPaths paths = PathsOf(context);
    MUSTER_ASSIGN_OR_RETURN(const Role parsed, ParseRole(role));
    MUSTER_RETURN_IF_ERROR(CheckName(role + " name", name));
    const Identity identity{parsed, name, cluster};
    MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(paths.IssuedCertificates()));
    const bool known = std::ranges::any_of(
        issued, [&](const CertificateInfo& info) { return info.identity == identity; });
    MUSTER_RETURN_IF_ERROR(
        Revoke(paths.RevokedCertificates(),
               {.identity = IdentityUri(identity), .revoked_ms = Now(), .reason = reason}));
    context.terminal.out << "Revoked all certificates of " << role << " " << name << ".\n";
    if (!known) WarnNotRegistered(context, "certificate of " + role + " " + name);
    if (parsed == Role::kNode)
      context.terminal.out << "To admit it again: muster certs join-token --dir "
                           << ShellWord(context.dir()) << " --node " << name << "\n";
    return OkStatus();
  }
};

template void AddVerb<CertsIssue>(CommandLine& line);
template void AddVerb<CertsJoinToken>(CommandLine& line);
template void AddVerb<CertsList>(CommandLine& line);
template void AddVerb<CertsRevoke>(CommandLine& line);

}  // namespace muster::verbs
