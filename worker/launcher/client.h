// Launcher: the worker's side of muster-launcher.
//
// Blocks, for as long as the launcher takes to look an account up; any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "common/base/proc_reader.h"
#include "common/base/result.h"
#include "worker/launcher/messages.h"

namespace muster {

class Launcher {
 public:
  explicit Launcher(std::string socket) : socket_(std::move(socket)) {}

  // Where the directories of jobs are: DIR/JOB/run is the account's.
  Result<std::string> Hello() const;
  Status MakeDirectory(const std::string& account, const std::string& job) const;
  // `socket`: what the guardian finds as its first connection.
  Status StartGuardian(const std::string& account, const std::string& job,
                       const std::string& devices, int socket) const;
  Status StartFiles(const std::string& account, int socket) const;
  // SIGKILL to a process of the account, and to whatever is in the job's cgroup. kAborted: some
  // of it still ends. kPermissionDenied: the process is of another account.
  Status End(const std::string& account, const std::string& job,
             std::optional<ProcessId> process = std::nullopt) const;
  Status Forget(const std::string& account, const std::string& job) const;

 private:
  const std::string socket_;
};

namespace launcher {

bool DecodeReply(std::string_view bytes, Reply* reply);
// What a reply says of an account: "this node has no account 'ada'".
Status StatusOf(const Reply& reply, const std::string& account);

}  // namespace launcher
}  // namespace muster
