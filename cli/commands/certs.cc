// certs: issuing and revoking the cluster's certificates, and tokens by which nodes get theirs.
#include <algorithm>

#include "cli/commands/security.h"
#include "cli/exit_code.h"
#include "common/rpc/endpoint.h"
#include "common/security/certificate_authority.h"
#include "common/security/credentials.h"
#include "common/security/encoding.h"
#include "common/security/enrolment.h"
#include "common/security/issued_register.h"
#include "common/security/join_token.h"
#include "common/security/private_files.h"
#include "common/security/revocation.h"

namespace muster {
namespace {

SecurityPaths PathsOf(CommandContext& context) { return context.client.paths().Security(); }

std::int64_t Now() { return SystemClock().UnixMillis(); }

Result<AuthorityInfo> FindAuthority(const SecurityPaths& paths) {
  const auto ca_pem = ReadPrivateFile(paths.AuthorityCertificate(), Privacy::kTrusted);
  if (ca_pem.status().code() == StatusCode::kNotFound)
    return NotFound("there is no certificate authority in " + paths.dir +
                    "; go to the machine where muster init was run, or run it");
  if (!ca_pem.ok()) return ca_pem.status();
  MUSTER_RETURN_IF_ERROR(CheckPrivateDirectory(paths.dir));
  return ReadAuthority(*ca_pem);
}

// Where `init` put the credentials of the role's only one.
Result<std::string> DirectoryOf(const IssueOptions& options, const Identity& identity,
                                const SecurityPaths& paths) {
  if (!options.out.empty()) return options.out;
  if (identity.name == RoleWord(identity.role)) {
    if (identity.role == Role::kCoordinator) return paths.CoordinatorCredentials();
    if (identity.role == Role::kAdmin) return paths.AdminCredentials();
    if (identity.role == Role::kScraper) return paths.ScraperCredentials();
  }
  return InvalidArgument("say with --out where the credentials of " +
                         std::string(RoleWord(identity.role)) + " " + identity.name +
                         " are to be written");
}

// Renewing is meant; writing over somebody else's is not.
Status CheckMayWrite(const std::string& dir, const Identity& identity) {
  const auto there = LoadCredentials(dir);
  if (there.status().code() == StatusCode::kNotFound) return OkStatus();
  if (!there.ok()) return there.status();
  if (there->identity == identity) return OkStatus();
  return AlreadyExists(dir + " holds the credentials of " + IdentityUri(there->identity) +
                       "; name another directory with --out");
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

std::string StateOf(const JoinTokenRecord& token, std::int64_t now_ms) {
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
    std::erase_if(listing.tokens,
                  [&](const JoinTokenRecord& token) { return StateOf(token, now_ms) != "good"; });
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
                              {"state", StateOf(token, now_ms)}});
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
                  StateOf(token, now_ms)});
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

// As openssl and browsers show serials too: in capitals, with colons, without leading zeros.
Result<std::string> PlainSerial(const std::string& text) {
  std::string digits;
  for (const char c : text)
    if (c != ':') digits += c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
  if (digits.size() < 32) digits.insert(0, 32 - digits.size(), '0');
  if (text.empty() || !IsHex(digits, 32))
    return InvalidArgument("'" + Printable(text) +
                           "' is no serial of 32 hexadecimal digits; muster certs list shows them");
  return digits;
}

Status RevokeToken(CommandContext& context, const std::string& id) {
  MUSTER_RETURN_IF_ERROR(JoinTokenRegister(PathsOf(context).JoinTokens(), "").Withdraw(id));
  context.terminal.out << "The join token " << id << " lets nobody in any more.\n";
  return OkStatus();
}

// The register knows neither what was signed with a copy of the key elsewhere nor what it lost, and
// whoever revokes is not to be held up by that; but a name may be mistyped.
void SayItIsNotInTheRegister(CommandContext& context, const std::string& what) {
  context.terminal.err << "Note: " << what
                       << " was never issued here, as far as the register knows; muster certs list "
                          "--all shows what was.\n";
}

Status RevokeSerial(CommandContext& context, const RevokeOptions& options) {
  const SecurityPaths paths = PathsOf(context);
  MUSTER_ASSIGN_OR_RETURN(const std::string serial, PlainSerial(options.serial));
  MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(paths.IssuedCertificates()));
  const auto found = std::find_if(issued.begin(), issued.end(), [&](const CertificateInfo& info) {
    return info.serial == serial;
  });
  const bool known = found != issued.end();
  MUSTER_RETURN_IF_ERROR(
      Revoke(paths.RevokedCertificates(), {.serial = serial,
                                           .identity = known ? IdentityUri(found->identity) : "",
                                           .revoked_ms = Now(),
                                           .reason = options.reason}));
  const std::string owner =
      known ? " of " + std::string(RoleWord(found->identity.role)) + " " + found->identity.name
            : "";
  context.terminal.out << "The certificate " << serial << owner << " is refused from now on.\n";
  if (!known) SayItIsNotInTheRegister(context, "a certificate with serial " + serial);
  return OkStatus();
}

Status RevokeName(CommandContext& context, const RevokeOptions& options,
                  const std::string& cluster) {
  const SecurityPaths paths = PathsOf(context);
  MUSTER_ASSIGN_OR_RETURN(const Role role, ParseRole(options.role));
  MUSTER_RETURN_IF_ERROR(CheckName(options.role + " name", options.name));
  const Identity identity{role, options.name, cluster};
  MUSTER_ASSIGN_OR_RETURN(const auto issued, ReadIssued(paths.IssuedCertificates()));
  const bool known = std::ranges::any_of(
      issued, [&](const CertificateInfo& info) { return info.identity == identity; });
  MUSTER_RETURN_IF_ERROR(
      Revoke(paths.RevokedCertificates(),
             {.identity = IdentityUri(identity), .revoked_ms = Now(), .reason = options.reason}));
  context.terminal.out << "All certificates of " << options.role << " " << options.name
                       << " are refused from now on.\n";
  if (!known)
    SayItIsNotInTheRegister(context, "a certificate of " + options.role + " " + options.name);
  if (role == Role::kNode)
    context.terminal.out << "To let it in again: muster certs join-token --dir "
                         << ShellWord(context.dir()) << " --node " << options.name << "\n";
  return OkStatus();
}

}  // namespace

CommandResult RunCertsIssue(CommandContext& context, const IssueOptions& options) {
  const SecurityPaths paths = PathsOf(context);
  MUSTER_ASSIGN_OR_RETURN(const CertificateAuthority authority,
                          CertificateAuthority::Open(paths.dir));
  MUSTER_ASSIGN_OR_RETURN(const Role role, ParseRole(options.role));
  const Identity identity{role, options.name.empty() ? options.role : options.name,
                          authority.cluster()};
  MUSTER_RETURN_IF_ERROR(CheckIdentity(identity));
  MUSTER_ASSIGN_OR_RETURN(const std::string dir, DirectoryOf(options, identity, paths));
  MUSTER_RETURN_IF_ERROR(CheckMayWrite(dir, identity));
  // Whoever has the authority's key and issues for a revoked name means to let it in again.
  MUSTER_RETURN_IF_ERROR(Readmit(paths.RevokedCertificates(), identity, Now()));
  MUSTER_ASSIGN_OR_RETURN(
      const IssuedCertificate issued,
      authority.Issue(identity, options.lifetime.value_or(DefaultLifetime(role)), Now()));
  MUSTER_RETURN_IF_ERROR(
      WriteCredentials(dir, {authority.certificate_pem(), issued.certificate_pem, issued.key_pem}));
  MUSTER_ASSIGN_OR_RETURN(const CertificateInfo info, ReadCertificate(issued.certificate_pem));
  const Json json = {{"role", options.role},
                     {"name", identity.name},
                     {"dir", dir},
                     {"serial", info.serial},
                     {"expires", IsoTime(info.not_after_ms)}};
  if (!PrintStructured(context.terminal.out, context.output, json, "dir"))
    context.terminal.out << "Credentials of " << options.role << " " << identity.name << " are in "
                         << dir << ", good until " << UtcTime(info.not_after_ms) << ".\n";
  return kExitSuccess;
}

namespace {

// The token with what the running coordinator says of itself. One that listens at every address of
// its host is reached where nodes join.
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

CommandResult RunCertsJoinToken(CommandContext& context, const JoinTokenOptions& options) {
  if (options.node.empty() == !options.any_node)
    return InvalidArgument("say for which node the token is: --node NODE, or --any-node");
  MUSTER_ASSIGN_OR_RETURN(const Enrolment enrolment, Enrolment::Open(PathsOf(context).dir));
  MUSTER_ASSIGN_OR_RETURN(const std::string text,
                          enrolment.MakeToken(options.node, options.expires, Now()));
  MUSTER_ASSIGN_OR_RETURN(const JoinToken token, ParseJoinToken(text));
  const Invitation invitation = InvitationWith(context, text, options.join_address);
  const Json json = {{"token", text},
                     {"invitation", InvitationText(invitation)},
                     {"id", token.id},
                     {"node", options.node},
                     {"expires", IsoTime(token.expires_ms)}};
  Terminal& terminal = context.terminal;
  if (PrintStructured(terminal.out, context.output, json, "token")) return kExitSuccess;
  const std::string node = options.node.empty() ? "NODE" : options.node;
  terminal.out << InvitationText(invitation) << "\n";
  if (invitation.join_address.empty())
    terminal.err << "warning: no coordinator with --join-listen runs in " << context.dir()
                 << ", so the token does not say where to join; name it with --join-address "
                    "IP:PORT\n";
  terminal.err << "It lets " << (options.node.empty() ? "one new node" : "node " + node)
               << " in, once, until " << UtcTime(token.expires_ms) << ". On the node, with the "
               << "line in a file:\n  muster-worker --dir LOCAL --node " << node
               << (invitation.coordinator.empty() ? " --coordinator IP:PORT" : "")
               << " --join FILE\n";
  return kExitSuccess;
}

CommandResult RunCertsList(CommandContext& context, const ListCertificatesOptions& options) {
  const std::int64_t now_ms = Now();
  MUSTER_ASSIGN_OR_RETURN(const Listing listing,
                          ReadListing(PathsOf(context), options.all, now_ms));
  const Json json = ListingJson(listing, now_ms);
  // One line or name for each certificate; the whole for the other formats.
  const bool lines =
      context.output == OutputFormat::kName || context.output == OutputFormat::kJsonl;
  if (!PrintStructured(context.terminal.out, context.output, lines ? json["certificates"] : json,
                       "serial"))
    PrintListing(context.terminal, listing, now_ms);
  return kExitSuccess;
}

CommandResult RunCertsRevoke(CommandContext& context, const RevokeOptions& options) {
  const int given = !options.name.empty() + !options.serial.empty() + !options.token.empty();
  if (given != 1)
    return InvalidArgument("say what to revoke: a node's name, --serial SERIAL or --token ID");
  MUSTER_ASSIGN_OR_RETURN(const AuthorityInfo authority, FindAuthority(PathsOf(context)));
  if (!options.token.empty())
    MUSTER_RETURN_IF_ERROR(RevokeToken(context, options.token));
  else if (!options.serial.empty())
    MUSTER_RETURN_IF_ERROR(RevokeSerial(context, options));
  else
    MUSTER_RETURN_IF_ERROR(RevokeName(context, options, authority.cluster));
  return kExitSuccess;
}

}  // namespace muster
