#include "cli/security_flags.h"

namespace muster {
namespace {

// Leaves `value` as it is where nothing was given.
template <typename Value>
Status TakeDuration(const std::string& text, Value* value) {
  if (text.empty()) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(*value, ParseDuration(text));
  return OkStatus();
}

void AddInit(CLI::App& app, SecurityOptions& options, Command& chosen) {
  CLI::App* init = AddCommand(
      app, chosen, "init", "Make the cluster's certificate authority and credentials",
      [&options](CommandContext& c) -> CommandResult {
        MUSTER_RETURN_IF_ERROR(TakeDuration(options.init_lifetime, &options.init.lifetime));
        return RunInit(c, options.init);
      });
  Flagged(init, "--cluster", options.init.cluster, "The cluster's name [muster]",
          "MUSTER_INIT_CLUSTER");
  Flagged(init, "--lifetime", options.init_lifetime, "Of the authority, such as 365d [3652d]",
          "MUSTER_INIT_LIFETIME");
  Switch(init, "--force", options.init.force, "Put the authority that is there aside for a new one",
         "MUSTER_INIT_FORCE");
  Switch(init, "-y,--yes", options.init.yes, "With --force: although its certificates are good",
         "MUSTER_INIT_YES");
}

void AddIssue(CLI::App& certs, SecurityOptions& options, Command& chosen) {
  CLI::App* issue = AddCommand(
      certs, chosen, "issue", "Issue credentials, or renew those there",
      [&options](CommandContext& c) -> CommandResult {
        MUSTER_RETURN_IF_ERROR(TakeDuration(options.issue_lifetime, &options.issue.lifetime));
        return RunCertsIssue(c, options.issue);
      });
  Flagged(issue, "--role", options.issue.role, "admin, coordinator, node or scraper",
          "MUSTER_CERTS_ISSUE_ROLE")
      ->required();
  Flagged(issue, "--name", options.issue.name, "Of the node, person or script [the role]",
          "MUSTER_CERTS_ISSUE_NAME");
  Flagged(issue, "--lifetime", options.issue_lifetime,
          "Such as 12h or 30d [node 1d, coordinator 30d, scraper 90d, admin 365d]",
          "MUSTER_CERTS_ISSUE_LIFETIME");
  Flagged(issue, "--out", options.issue.out,
          "Directory to write ca.pem, cert.pem and key.pem to [DIR/security/ROLE]",
          "MUSTER_CERTS_ISSUE_OUT");
}

void AddJoinToken(CLI::App& certs, SecurityOptions& options, Command& chosen) {
  CLI::App* join =
      AddCommand(certs, chosen, "join-token", "Make a token by which one node joins, once",
                 [&options](CommandContext& c) -> CommandResult {
                   MUSTER_RETURN_IF_ERROR(
                       TakeDuration(options.join_token_expires, &options.join_token.expires));
                   return RunCertsJoinToken(c, options.join_token);
                 });
  CLI::Option* node = Flagged(join, "--node", options.join_token.node, "The node's name",
                              "MUSTER_CERTS_JOIN_TOKEN_NODE");
  Switch(join, "--any-node", options.join_token.any_node, "For any node that has not joined yet",
         "MUSTER_CERTS_JOIN_TOKEN_ANY_NODE")
      ->excludes(node);
  Flagged(join, "--join-address", options.join_token.join_address,
          "Where the node joins, IP:PORT [the running coordinator's --join-listen]",
          "MUSTER_CERTS_JOIN_TOKEN_JOIN_ADDRESS");
  Flagged(join, "--expires", options.join_token_expires, "After which it is good for nothing [1h]",
          "MUSTER_CERTS_JOIN_TOKEN_EXPIRES");
}

void AddList(CLI::App& certs, SecurityOptions& options, Command& chosen) {
  CLI::App* list = AddCommand(
      certs, chosen, "list", "List certificates, join tokens, revocations",
      [&options](CommandContext& c) -> CommandResult { return RunCertsList(c, options.list); });
  Switch(list, "--all", options.list.all, "Also expired certificates and used tokens",
         "MUSTER_CERTS_LIST_ALL");
}

void AddRevoke(CLI::App& certs, SecurityOptions& options, Command& chosen) {
  CLI::App* revoke = AddCommand(
      certs, chosen, "revoke", "Refuse a node from now on, a certificate, or a token",
      [&options](CommandContext& c) -> CommandResult { return RunCertsRevoke(c, options.revoke); });
  revoke->add_option("NODE", options.revoke.name, "The node's name, or another role's (--role)");
  Flagged(revoke, "--role", options.revoke.role, "Whose name it is [node]",
          "MUSTER_CERTS_REVOKE_ROLE");
  Flagged(revoke, "--serial", options.revoke.serial, "One certificate, instead of a name",
          "MUSTER_CERTS_REVOKE_SERIAL");
  Flagged(revoke, "--token", options.revoke.token, "A join token's id, instead of a name",
          "MUSTER_CERTS_REVOKE_TOKEN");
  Flagged(revoke, "--reason", options.revoke.reason, "Why, for those who are refused",
          "MUSTER_CERTS_REVOKE_REASON");
}

}  // namespace

void AddSecurityCommands(CLI::App& app, SecurityOptions& options, Command& chosen) {
  AddInit(app, options, chosen);
  CLI::App* certs = app.add_subcommand("certs", "The cluster's certificates, where its key is");
  certs->fallthrough();
  certs->require_subcommand(1);
  AddIssue(*certs, options, chosen);
  AddJoinToken(*certs, options, chosen);
  AddList(*certs, options, chosen);
  AddRevoke(*certs, options, chosen);
}

}  // namespace muster
