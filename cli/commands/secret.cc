// secret: values that a user's jobs get, and that are never shown.

#include <termios.h>
#include <unistd.h>

#include <iostream>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/base/files.h"
#include "common/base/wall_time.h"

namespace muster::verbs {
namespace {

constexpr std::size_t kMaxSecretBytes = 64 << 10;
constexpr char kSecretQueueHelp[] = "Queue whose jobs, and those of queues below it, may have it";
constexpr char kSecretExamples[] =
    "Examples:\n"
    "  muster secret set hf --queue research < token.txt\n"
    "  muster secret list\n"
    "Job files name them under `secrets`.";

// What is typed is not shown.
class WithoutEcho {
 public:
  WithoutEcho() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios silent = before_;
    silent.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    changed_ = ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) == 0;
  }
  ~WithoutEcho() {
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
  }
  WithoutEcho(const WithoutEcho&) = delete;
  WithoutEcho& operator=(const WithoutEcho&) = delete;

 private:
  termios before_{};
  bool changed_ = false;
};

std::string ReadStandardInput(std::ostream& err) {
  std::string value;
  if (::isatty(STDIN_FILENO) == 0) {
    value.resize(kMaxSecretBytes + 2);
    std::cin.read(value.data(), static_cast<std::streamsize>(value.size()));
    value.resize(static_cast<std::size_t>(std::cin.gcount()));
    return value;
  }
  err << "Value: " << std::flush;
  const WithoutEcho without_echo;
  std::getline(std::cin, value);
  err << "\n";
  return value;
}

// Files and pipes end with a newline that is none of the value's.
Result<std::string> ReadValue(const std::string& file, std::ostream& err) {
  std::string value;
  if (file.empty()) {
    value = ReadStandardInput(err);
  } else {
    auto read = ReadFile(file, kMaxSecretBytes + 1);
    if (!read.ok()) return read.status().WithContext("--from-file");
    value = *std::move(read);
  }
  if (value.ends_with('\n')) value.pop_back();
  return value;
}

CommandResult Say(CommandContext& context, const v1::SecretResponse& secret, const char* what) {
  const Json json = {{"owner", secret.owner()}, {"queue", secret.queue()}, {"name", secret.name()}};
  if (!PrintStructured(context.terminal.out, context.output, json, "name"))
    context.terminal.out << what << " secret " << secret.name() << " of " << secret.owner()
                         << " in queue " << secret.queue() << ".\n";
  return kExitSuccess;
}

}  // namespace

struct SecretSet {
  static constexpr char kName[] = "set";
  static constexpr char kSummary[] = "Store a secret, read from standard input, or replace it";

  std::string name;
  std::string queue = "default";
  std::string file;

  void AddFlags(Flags& flags) {
    flags.Add("NAME", name, "Name by which job files ask for it").Required();
    flags.Add("--queue QUEUE", queue, kSecretQueueHelp);
    flags.Add("--from-file FILE", file, "Read the value from a file");
    flags.SetFooter(kSecretExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(std::string value, ReadValue(file, context.terminal.err));
    v1::SetSecretRequest request;
    request.set_name(name);
    request.set_queue(queue);
    request.set_value(std::move(value));
    MUSTER_ASSIGN_OR_RETURN(const v1::SecretResponse secret,
                            ClusterAdmin(context.client).SetSecret(request));
    return Say(context, secret, "Stored");
  }
};

struct SecretList {
  static constexpr char kName[] = "list";
  static constexpr char kSummary[] = "List your secrets; values are never shown";

  bool all = false;

  void AddFlags(Flags& flags) {
    flags.Add("--all", all, "Secrets of all users; for admins");
    flags.SetFooter(kSecretExamples);
  }

  CommandResult Run(CommandContext& context) const {
    v1::ListSecretsRequest request;
    request.set_all(all);
    MUSTER_ASSIGN_OR_RETURN(const v1::ListSecretsResponse secrets,
                            ClusterAdmin(context.client).ListSecrets(request));
    Json list = Json::array();
    Table table({"NAME", "QUEUE", "OWNER", "UPDATED", "BY"});
    for (const v1::Secret& secret : secrets.secrets()) {
      list.push_back({{"name", secret.name()},
                      {"queue", secret.queue()},
                      {"owner", secret.owner()},
                      {"updated", IsoTime(secret.updated_unix_ms())},
                      {"updated_by", secret.updated_by()}});
      table.Add({secret.name(), secret.queue(), secret.owner(), UtcTime(secret.updated_unix_ms()),
                 secret.updated_by()});
    }
    if (!PrintStructured(context.terminal.out, context.output, list, "name"))
      table.Print(context.terminal.out, context.terminal.color);
    return kExitSuccess;
  }
};

struct SecretRemove {
  static constexpr char kName[] = "rm";
  static constexpr char kSummary[] = "Remove a secret";

  std::string name;
  std::string queue = "default";

  void AddFlags(Flags& flags) {
    flags.Add("NAME", name, "Name of the secret").Required();
    flags.Add("--queue QUEUE", queue, "Queue in which it was stored");
    flags.SetFooter(kSecretExamples);
  }

  CommandResult Run(CommandContext& context) const {
    v1::RemoveSecretRequest request;
    request.set_name(name);
    request.set_queue(queue);
    MUSTER_ASSIGN_OR_RETURN(const v1::SecretResponse secret,
                            ClusterAdmin(context.client).RemoveSecret(request));
    return Say(context, secret, "Removed");
  }
};

struct SecretRotateKey {
  static constexpr char kName[] = "rotate-key";
  static constexpr char kSummary[] =
      "Encrypt all secrets by a new key, and forget the one before; for admins";

  void AddFlags(Flags& flags) { flags.SetFooter(kSecretExamples); }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::RotateSecretKeyResponse done,
                            ClusterAdmin(context.client).RotateSecretKey());
    const Json json = {{"secrets", done.secrets()}};
    if (!PrintStructured(context.terminal.out, context.output, json, "secrets"))
      context.terminal.out << "Encrypted " << done.secrets()
                           << (done.secrets() == 1 ? " secret" : " secrets") << " by a new key.\n";
    return kExitSuccess;
  }
};

template void AddVerb<SecretSet>(CommandLine& line);
template void AddVerb<SecretList>(CommandLine& line);
template void AddVerb<SecretRemove>(CommandLine& line);
template void AddVerb<SecretRotateKey>(CommandLine& line);

}  // namespace muster::verbs
