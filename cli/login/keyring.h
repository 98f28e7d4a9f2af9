// Keyring: the person's keyring (GNOME Keyring, KWallet, KeePassXC), in which refresh tokens of
// logins are kept. The Secret Service of freedesktop is asked by libsecret's program secret-tool.
//
// A token goes through a pipe and is in no command line. A keyring that is locked asks the person,
// who may not be there, and one may hang: each call ends within the limit. One thread; blocks.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"

namespace muster {

// Which token: that of a cluster's login in a LoginStore's folder.
struct KeyringEntry {
  std::string cluster;
  std::string root;
};

// What of the environment decides whether there is one.
struct KeyringPlace {
  std::string path;         // PATH
  std::string bus_address;  // DBUS_SESSION_BUS_ADDRESS
  std::string runtime_dir;  // XDG_RUNTIME_DIR
};

class Keyring {
 public:
  static constexpr Duration kLimit = std::chrono::seconds(10);

  // None without secret-tool, or without a session bus: over SSH, in batch jobs, in containers.
  static std::optional<Keyring> Find(const KeyringPlace& place);
  static std::optional<Keyring> OfSession();

  // `program`: secret-tool, or what stands for it in tests.
  explicit Keyring(std::string program, Duration limit = kLimit)
      : program_(std::move(program)), limit_(limit) {}

  // kUnavailable for all, in one line, where the keyring is locked, hangs or is not there.
  Status Store(const KeyringEntry& entry, const std::string& token) const;
  // kNotFound: the keyring has no such token.
  Result<std::string> Lookup(const KeyringEntry& entry) const;
  Status Remove(const KeyringEntry& entry) const;

 private:
  Result<std::string> Run(std::vector<std::string> words, const KeyringEntry& entry,
                          const std::string& input) const;

  std::string program_;
  Duration limit_;
};

}  // namespace muster
