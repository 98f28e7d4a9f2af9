// Signing in at an issuer, by a browser of this machine or of another one.
//
// One thread; waits for the person, five minutes by a browser, as long as the issuer says by a
// code; ends early on an Interrupt.
#pragma once

#include <atomic>
#include <memory>
#include <ostream>
#include <string>

#include "cli/base/interrupt.h"
#include "common/base/result.h"
#include "common/oidc/requests.h"

namespace muster {

// The issuer, as its client talks to it.
class IssuerClient {
 public:
  IssuerClient(std::string ca_pem, Interrupt& interrupt);

  Result<IssuerMetadata> Discover(const std::string& issuer);
  Result<IssuerAnswer> Post(const std::string& url, const std::string& form);

 private:
  const std::string ca_pem_;
  Interrupt& interrupt_;
  std::atomic<bool> cancelled_ = false;
  std::unique_ptr<HttpClient> client_;
};

struct SignIn {
  IssuerClient& issuer;
  const IssuerMetadata& metadata;
  std::string client_id;
  std::string nonce;
  std::ostream& out;  // what the person is to do
  Interrupt& interrupt;
};

// Whether a browser can be opened here: there is a screen and xdg-open, and no SSH.
bool HasBrowser();

// kUnauthenticated in the issuer's words where it refuses.
Result<Tokens> SignInByBrowser(const SignIn& sign_in);
Result<Tokens> SignInByCode(const SignIn& sign_in);

}  // namespace muster
