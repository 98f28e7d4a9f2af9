// The flags of `muster init` and `muster certs`. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/commands/security.h"
#include "cli/flags.h"

namespace muster {

// Filled while the command line is parsed.
struct SecurityOptions {
  InitOptions init;
  std::string init_lifetime;
  IssueOptions issue;
  std::string issue_lifetime;
  JoinTokenOptions join_token;
  std::string join_token_expires;
  ListCertificatesOptions list;
  RevokeOptions revoke;
};

void AddSecurityCommands(CLI::App& app, SecurityOptions& options, Command& chosen);

}  // namespace muster
