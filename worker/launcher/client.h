// Launcher: the worker's side of muster-launcher.
//
// Blocks, for as long as the launcher takes to look an account up; any thread.
#pragma once

#include <string>
#include <string_view>

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
  // SIGKILL to whatever is in the job's cgroup. kAborted: some of it still ends.
  Status End(const std::string& job) const;
  Status Forget(const std::string& job) const;

 private:
  const std::string socket_;
};

namespace launcher {

// What a reply says: its text, or the error. kFailedPrecondition: it is no reply.
Result<std::string> ReadReply(std::string_view bytes);
// Whether a path lies in a directory of which each job has one of its own.
bool IsOfEachJob(std::string_view path);

}  // namespace launcher
}  // namespace muster
