// `muster init` and `muster certs`: the cluster's certificates, on the machine that has the
// authority's key. They read and write files below DIR/security and speak to no coordinator, which
// sees by itself what they changed.
//
// As commands.h says. One thread.
#pragma once

#include <optional>
#include <string>

#include "cli/commands/commands.h"
#include "common/security/identity.h"
#include "common/security/join_token_register.h"

namespace muster {

struct InitOptions {
  std::string cluster;  // empty: the one of the authority that is there, or "muster"
  bool force = false;   // put the authority that is there aside
  bool yes = false;     // although certificates of it are still good
  Duration lifetime = kAuthorityLifetime;
};
// Makes what is missing of authority and credentials, and leaves what is there.
CommandResult RunInit(CommandContext& context, const InitOptions& options);

struct IssueOptions {
  std::string role;
  std::string name;                  // empty: the role's word
  std::string out;                   // empty: the directory that `init` made for the role
  std::optional<Duration> lifetime;  // none: the role's
};
CommandResult RunCertsIssue(CommandContext& context, const IssueOptions& options);

struct JoinTokenOptions {
  std::string node;
  bool any_node = false;
  Duration expires = kJoinTokenLifetime;
  std::string join_address;  // IP:PORT; empty: the running coordinator's
};
// The invitation alone goes to `out` (common/security/join_token.h).
CommandResult RunCertsJoinToken(CommandContext& context, const JoinTokenOptions& options);

struct ListCertificatesOptions {
  bool all = false;
};
CommandResult RunCertsList(CommandContext& context, const ListCertificatesOptions& options);

// One of name, serial and token.
struct RevokeOptions {
  std::string name;
  std::string role = "node";
  std::string serial;
  std::string token;
  std::string reason;
};
CommandResult RunCertsRevoke(CommandContext& context, const RevokeOptions& options);

}  // namespace muster
