#include "cli/login/keyring.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "cli/login/environment.h"
#include "common/process/run_child.h"

namespace muster {
namespace {

constexpr std::size_t kMaxTokenBytes = 64 << 10;

// The last line that says anything.
std::string Reason(std::string errors) {
  while (!errors.empty() && errors.back() == '\n') errors.pop_back();
  return errors.substr(errors.rfind('\n') + 1);
}

}  // namespace

std::optional<Keyring> Keyring::Find(const KeyringPlace& place) {
  const bool bus =
      !place.bus_address.empty() ||
      (!place.runtime_dir.empty() && ::access((place.runtime_dir + "/bus").c_str(), F_OK) == 0);
  if (!bus) return std::nullopt;
  const Result<std::string> program = FindProgram("secret-tool", place.path, "/");
  return program.ok() ? std::optional(Keyring(*program)) : std::nullopt;
}

std::optional<Keyring> Keyring::OfSession() {
  return Find({.path = Variable("PATH"),
               .bus_address = Variable("DBUS_SESSION_BUS_ADDRESS"),
               .runtime_dir = Variable("XDG_RUNTIME_DIR")});
}

Result<std::string> Keyring::Run(std::vector<std::string> words, const KeyringEntry& entry,
                                 const std::string& input) const {
  RunChildOptions options;
  options.spawn.argv = {program_};
  std::ranges::move(words, std::back_inserter(options.spawn.argv));
  for (const std::string& word :
       {std::string("service"), std::string("muster"), std::string("cluster"), entry.cluster,
        std::string("directory"), entry.root})
    options.spawn.argv.push_back(word);
  options.spawn.environment = WholeEnvironment();
  options.input = input;
  options.max_output = kMaxTokenBytes;
  options.errors_apart = true;
  options.limit = limit_;
  const Result<ChildOutcome> done = RunChild(options);
  if (!done.ok()) return Unavailable("the keyring cannot be asked: " + done.status().message());
  if (done->timed_out) return Unavailable("the keyring does not answer; it may be locked");
  if (done->ok()) return done->output;
  const std::string reason = Reason(done->errors);
  // So secret-tool says that the entry is missing, or locked where no person can be asked.
  if (reason.empty() && done->exit.exit_code == 1)
    return NotFound("the keyring does not have it, or is locked");
  return Unavailable("the keyring cannot be used: " + (reason.empty() ? done->Describe() : reason));
}

Status Keyring::Store(const KeyringEntry& entry, const std::string& token) const {
  const auto stored =
      Run({"store", "--label=Muster login to cluster " + entry.cluster}, entry, token);
  if (stored.status().code() == StatusCode::kNotFound)
    return Unavailable("the keyring does not take it");
  return stored.status();
}

Result<std::string> Keyring::Lookup(const KeyringEntry& entry) const {
  auto found = Run({"lookup"}, entry, "");
  if (found.ok() && found->empty()) return NotFound("the keyring does not have it, or is locked");
  return found;
}

Status Keyring::Remove(const KeyringEntry& entry) const {
  const auto removed = Run({"clear"}, entry, "");
  return removed.status().code() == StatusCode::kNotFound ? OkStatus() : removed.status();
}

}  // namespace muster
