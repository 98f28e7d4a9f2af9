// login, logout: a person's certificate by OpenID Connect, for as long as the issuer says, or by
// the account on the coordinator's machine.

#include <optional>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/login/local_login.h"
#include "cli/login/login_certificate.h"
#include "cli/login/login_store.h"
#include "cli/login/sign_in.h"
#include "common/base/files.h"
#include "common/base/wall_time.h"
#include "common/security/certificate.h"
#include "common/security/credentials.h"
#include "common/security/private_files.h"

namespace muster::verbs {
namespace {

constexpr std::int64_t kMaxCaBytes = 64 << 10;

// The given address, or the latest login's; empty: there is neither.
std::string AddressOr(const LoginStore& store, const std::string& address) {
  if (!address.empty()) return address;
  const auto current = store.Current();
  const auto login = current.ok() ? store.Load(*current) : Result<Login>(current.status());
  return login.ok() ? login->address : "";
}

// Where to log in, and by what the coordinator there is known.
struct Door {
  std::string address;
  std::string ca_pem;
  std::string issuer;  // of the latest login, where the address is its; else empty
};

// Those of the latest login where they are not given.
Result<Door> FindDoor(const LoginStore& store, const std::string& address,
                      const std::string& ca_file) {
  Door door{.address = address};
  const auto current = store.Current();
  if (address.empty() && !current.ok())
    return InvalidArgument(
        "expected the address where the cluster's users log in\n  next: muster login ADDRESS --ca "
        "FILE");
  if (address.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const Login login, store.Load(*current));
    door.address = login.address;
    door.issuer = login.issuer;
  }
  if (ca_file.empty() && !current.ok())
    return InvalidArgument(
        "expected --ca FILE, the cluster's ca.pem, by which its coordinator is known; an admin has "
        "it");
  auto ca_pem = ReadFile(ca_file.empty() ? store.CaPath(*current) : ca_file, kMaxCaBytes);
  if (!ca_pem.ok()) return ca_pem.status().WithContext("--ca");
  door.ca_pem = *std::move(ca_pem);
  return door;
}

Result<v1::Issuer> ChooseIssuer(const v1::IssuersResponse& offered, const std::string& url) {
  std::string urls;
  for (const v1::Issuer& issuer : offered.issuers()) {
    if (issuer.url() == url || (url.empty() && offered.issuers_size() == 1)) return issuer;
    urls += "\n  " + issuer.url();
  }
  if (urls.empty())
    return FailedPrecondition("cluster " + offered.cluster() +
                              " has no login: its user file has no issuers");
  return InvalidArgument("expected --issuer URL, one of" + urls);
}

}  // namespace

struct LogIn {
  static constexpr char kName[] = "login";
  static constexpr char kSummary[] = "Log in to a cluster; later commands use it";

  std::string address;
  std::string ca;
  std::string issuer;
  std::optional<bool> device;
  bool insecure_storage = false;

  void AddFlags(Flags& flags) {
    flags.Add("ADDRESS", address,
              "HOST:PORT,... of the coordinators' --join-listen, or unix:PATH of a --local-login "
              "[default: the latest login's]");
    flags.Add("--ca FILE", ca, "The cluster's ca.pem [default: the latest login's]");
    flags.Add("--issuer URL", issuer,
              "Issuer, where the cluster has several [default: the latest login's]");
    flags.AddYesNo("device", device,
                   "Log in by a code with any browser [default: where none can be opened here]");
    flags.Add("--insecure-storage", insecure_storage,
              "Keep the refresh token in a file of mode 0600 also where there is a keyring");
    flags.SetFooter(
        "Examples:\n"
        "  muster login 10.0.0.1:7002 --ca ca.pem\n"
        "  muster login unix:/run/muster/login.sock\n"
        "  muster login");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const LoginStore store, LoginStore::OfUser());
    const std::string given = AddressOr(store, address);
    if (IsLocalLogin(given)) {
      MUSTER_ASSIGN_OR_RETURN(const Login login, LogInByAccount(store, given));
      return Report(context, store, login);
    }
    MUSTER_ASSIGN_OR_RETURN(const Door door, FindDoor(store, address, ca));
    MUSTER_ASSIGN_OR_RETURN(const AuthorityInfo authority, ReadAuthority(door.ca_pem));
    MUSTER_ASSIGN_OR_RETURN(const v1::IssuersResponse offered,
                            AskForIssuers(door.address, door.ca_pem, context.interrupt()));
    MUSTER_ASSIGN_OR_RETURN(const v1::Issuer chosen,
                            ChooseIssuer(offered, issuer.empty() ? door.issuer : issuer));
    IssuerClient client(offered.issuer_ca_pem(), context.interrupt());
    MUSTER_ASSIGN_OR_RETURN(const IssuerMetadata metadata, client.Discover(chosen.url()));
    MUSTER_ASSIGN_OR_RETURN(const LoginKey key, NewLoginKey(authority.cluster));
    const SignIn sign_in{
        client, metadata, chosen.client_id(), key.nonce, context.terminal.err, context.interrupt()};
    const bool by_code =
        device.value_or(!HasBrowser() && !metadata.device_authorization_endpoint.empty());
    MUSTER_ASSIGN_OR_RETURN(const Tokens tokens,
                            by_code ? SignInByCode(sign_in) : SignInByBrowser(sign_in));
    Login login{.cluster = authority.cluster,
                .address = door.address,
                .issuer = chosen.url(),
                .client_id = chosen.client_id(),
                .token_endpoint = metadata.token_endpoint,
                .revocation_endpoint = metadata.revocation_endpoint,
                .issuer_ca_pem = offered.issuer_ca_pem(),
                .refresh_token = tokens.refresh_token};
    if (!login.refresh_token.empty() && !insecure_storage && store.has_keyring())
      login.place = TokenPlace::kKeyring;
    // A renewal under way would put the files of the login before in their place.
    MUSTER_RETURN_IF_ERROR(MakePrivateDirectory(store.root()));
    MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(store.root()));
    MUSTER_RETURN_IF_ERROR(
        CompleteLogin(store, key, door.ca_pem, tokens.id_token, context.interrupt(), &login));
    MUSTER_RETURN_IF_ERROR(store.MakeCurrent(login.cluster));
    return Report(context, store, login);
  }

 private:
  static CommandResult Report(CommandContext& context, const LoginStore& store,
                              const Login& login) {
    const std::string dir = store.DirOf(login.cluster);
    MUSTER_ASSIGN_OR_RETURN(const Credentials credentials, LoadCredentials(dir));
    const Json json = {{"cluster", login.cluster},
                       {"user", login.user},
                       {"issuer", login.issuer},
                       {"dir", dir},
                       {"expires", IsoTime(credentials.not_after_ms)},
                       {"renews", Renews(login)},
                       {"refresh_token_in", WhereTokenIs(login)}};
    if (PrintStructured(context.terminal.out, context.output, json, "user")) return kExitSuccess;
    context.terminal.out << "Logged in to cluster " << login.cluster << " as " << login.user
                         << " until " << UtcTime(credentials.not_after_ms)
                         << (Renews(login) ? ", renewed while it is used.\n" : ".\n");
    if (const Json place = WhereTokenIs(login); place == "keyring")
      context.terminal.out << "The refresh token is in the keyring.\n";
    else if (place == "file")
      context.terminal.out << "The refresh token is in " << dir << "/login.json"
                           << (login.why_in_file.empty() ? "" : ": " + login.why_in_file) << ".\n";
    return kExitSuccess;
  }

  // "keyring" or "file"; null: there is none.
  static Json WhereTokenIs(const Login& login) {
    if (login.place == TokenPlace::kKeyring) return "keyring";
    return login.refresh_token.empty() ? Json() : Json("file");
  }
};

struct LogOut {
  static constexpr char kName[] = "logout";
  static constexpr char kSummary[] = "End the login to a cluster, and remove its files";

  std::string cluster;

  void AddFlags(Flags& flags) {
    flags.Add("CLUSTER", cluster, "Cluster name [default: the latest login's]");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const LoginStore store, LoginStore::OfUser());
    std::string name = cluster;
    if (name.empty()) {
      const auto current = store.Current();
      if (!current.ok()) return NotFound("you are not logged in to a cluster");
      name = *current;
    }
    // A renewal under way would bring the files back.
    MUSTER_ASSIGN_OR_RETURN(const UniqueFd lock, LockDirectory(store.root()));
    const auto login = store.Load(name);
    if (login.status().code() == StatusCode::kNotFound)
      return NotFound("you are not logged in to cluster " + name);
    if (login.ok()) EndAtIssuer(context, store, *login);
    if (const Status removed = store.RemoveFromKeyring(name); !removed.ok())
      context.terminal.err << "muster: warning: the keyring still has the refresh token of cluster "
                           << name << ": " << removed.message() << "\n";
    MUSTER_RETURN_IF_ERROR(store.Remove(name));
    const Json json = {{"cluster", name}};
    if (!PrintStructured(context.terminal.out, context.output, json, "cluster"))
      context.terminal.out << "Logged out of cluster " << name << ".\n";
    return kExitSuccess;
  }

 private:
  static void EndAtIssuer(CommandContext& context, const LoginStore& store, const Login& login) {
    const auto token = store.RefreshToken(login);
    if ((token.ok() && token->empty()) || login.revocation_endpoint.empty()) return;
    IssuerClient client(login.issuer_ca_pem, context.interrupt());
    const auto revoked = [&] {
      const auto answer =
          client.Post(login.revocation_endpoint, RevokeForm(login.client_id, *token));
      return answer.ok() && answer->code == 200;
    };
    if (!token.ok() || !revoked())
      context.terminal.err << "muster: warning: could not tell the issuer " << login.issuer
                           << " that the login has ended\n";
  }
};

template void AddVerb<LogIn>(CommandLine& line);
template void AddVerb<LogOut>(CommandLine& line);

}  // namespace muster::verbs
