#include "cli/login/sign_in.h"

#include <unistd.h>

#include <utility>

#include "cli/login/environment.h"
#include "cli/login/loopback_listener.h"
#include "common/base/clock.h"
#include "common/process/spawn.h"

namespace muster {
namespace {

constexpr Duration kBrowserLimit = std::chrono::minutes(5);
constexpr Duration kSlowDown = std::chrono::seconds(5);  // RFC 8628, 3.5

Result<std::string> FindOpener() { return FindProgram("xdg-open", Variable("PATH"), "/"); }

// The address is printed anyway, so that an opener that fails costs nothing.
void OpenBrowser(const std::string& url) {
  const Result<std::string> opener = FindOpener();
  if (!opener.ok()) return;
  SpawnOptions options;
  options.argv = {*opener, url};
  options.environment = WholeEnvironment();
  (void)SpawnDetached(options);
}

Result<Tokens> Granted(TokenAnswer answer) {
  if (answer.state != TokenState::kGranted)
    return Unauthenticated("the issuer refuses the login: " + answer.why +
                           "\n  next: muster login");
  if (answer.tokens.id_token.empty())
    return Unauthenticated(
        "the issuer gives no ID token; the client must be one of OpenID Connect (scope openid)");
  return std::move(answer.tokens);
}

}  // namespace

IssuerClient::IssuerClient(std::string ca_pem, Interrupt& interrupt)
    : ca_pem_(std::move(ca_pem)), interrupt_(interrupt), client_(MakeHttpClient()) {}

Result<IssuerMetadata> IssuerClient::Discover(const std::string& issuer) {
  MUSTER_RETURN_IF_ERROR(CheckIssuerUrl(issuer));
  const Interrupt::Scope scope(interrupt_, [this] { cancelled_ = true; });
  const std::string url = DiscoveryUrl(issuer);
  MUSTER_ASSIGN_OR_RETURN(
      const std::string text,
      FetchDocument(*client_, {.ca_pem = ca_pem_, .cancelled = &cancelled_}, url));
  auto metadata = ParseDiscovery(issuer, text);
  if (!metadata.ok()) return Unavailable(url + ": " + metadata.status().message());
  return metadata;
}

Result<IssuerAnswer> IssuerClient::Post(const std::string& url, const std::string& form) {
  const Interrupt::Scope scope(interrupt_, [this] { cancelled_ = true; });
  return AskIssuer(*client_, {.ca_pem = ca_pem_, .cancelled = &cancelled_}, url, form);
}

bool HasBrowser() {
  const bool screen = !Variable("DISPLAY").empty() || !Variable("WAYLAND_DISPLAY").empty();
  return screen && Variable("SSH_CONNECTION").empty() && FindOpener().ok();
}

Result<Tokens> SignInByBrowser(const SignIn& sign_in) {
  CodeLogin login;
  std::string code;
  {
    MUSTER_ASSIGN_OR_RETURN(const LoopbackListener listener, LoopbackListener::Open());
    MUSTER_ASSIGN_OR_RETURN(login, NewCodeLogin(sign_in.client_id, listener.redirect_uri()));
    login.nonce = sign_in.nonce;
    const std::string url = AuthorizationUrl(sign_in.metadata, login);
    sign_in.out << "Log in with a browser of this machine:\n  " << url << "\n" << std::flush;
    if (HasBrowser()) OpenBrowser(url);
    auto answered =
        listener.AwaitCode(login, sign_in.metadata.issuer, kBrowserLimit, sign_in.interrupt);
    if (answered.status().code() == StatusCode::kPermissionDenied)
      return PermissionDenied("the login was refused: " + answered.status().message() +
                              "\n  next: muster login");
    if (!answered.ok()) return answered.status();
    code = *std::move(answered);
  }
  MUSTER_ASSIGN_OR_RETURN(
      const IssuerAnswer answer,
      sign_in.issuer.Post(sign_in.metadata.token_endpoint, RedeemForm(login, code)));
  MUSTER_ASSIGN_OR_RETURN(TokenAnswer tokens, ParseTokenAnswer(answer));
  return Granted(std::move(tokens));
}

Result<Tokens> SignInByCode(const SignIn& sign_in) {
  const std::string& endpoint = sign_in.metadata.device_authorization_endpoint;
  if (endpoint.empty())
    return FailedPrecondition("the issuer " + sign_in.metadata.issuer +
                              " offers no login by a code\n  next: muster login --no-device");
  MUSTER_ASSIGN_OR_RETURN(
      const IssuerAnswer begun,
      sign_in.issuer.Post(endpoint, DeviceForm(sign_in.metadata, sign_in.client_id)));
  MUSTER_ASSIGN_OR_RETURN(const DeviceLogin login, ParseDeviceLogin(begun));
  sign_in.out << "Log in with any browser:\n  " << login.verification_uri << "\nand enter the code "
              << login.user_code << "\n";
  if (!login.verification_uri_complete.empty())
    sign_in.out << "or open  " << login.verification_uri_complete << "\n";
  sign_in.out << std::flush;
  const std::string form = DevicePollForm(sign_in.client_id, login.device_code);
  Duration pause = login.interval;
  for (const Deadline deadline = Deadline::After(login.expires); !deadline.Expired();) {
    if (sign_in.interrupt.WaitFor(pause)) return Cancelled("interrupted");
    const auto answer = sign_in.issuer.Post(sign_in.metadata.token_endpoint, form);
    if (answer.status().code() == StatusCode::kCancelled) return answer.status();
    auto tokens = answer.ok() ? ParseTokenAnswer(*answer) : Result<TokenAnswer>(answer.status());
    // An issuer that does not answer is asked less often too.
    if (!tokens.ok() || tokens->state == TokenState::kSlowDown)
      pause += kSlowDown;
    else if (tokens->state != TokenState::kPending)
      return Granted(*std::move(tokens));
  }
  return DeadlineExceeded("the code has expired\n  next: muster login");
}

}  // namespace muster
