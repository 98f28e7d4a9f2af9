// OwnerFiles: all that a worker does with files of a job's owner: below its output directory, and
// in the directory that its ranks see.
//
// Without a launcher this process does it, as its own user. With one a file server does, a process
// of the owner's account (owner_server.h), so that the account's rights decide, also where a
// network file system asks the client for its user. There is one for each account, started when
// it is needed; it ends when it was idle for minutes, or with this object.
//
// Every call blocks, as long as a disk does; any thread. Calls do not wait for each other.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/control_pipe/packet_socket.h"
#include "common/wire/messages.h"
#include "worker/agent/checkpoint_scrub.h"
#include "worker/agent/job_records.h"
#include "worker/agent/preflight.h"
#include "worker/launcher/client.h"

namespace muster::worker {

class OwnerFiles {
 public:
  // `launcher`: its socket; empty: there is none.
  explicit OwnerFiles(const std::string& launcher);

  // nullptr: this process does everything.
  const Launcher* launcher() const { return launcher_ ? &*launcher_ : nullptr; }

  OwnersPart PrepareForOwner(const LaunchContext& context, const Prepare& prepare,
                             const std::string& ranks_dir);
  // Beside the job's own record, from which a restarted worker learns of the launch.
  Status WriteResumeFile(const std::string& account, const Launch& launch,
                         const std::string& ranks_dir);
  std::vector<std::string> RemoveAbandonedCheckpoints(const std::string& account,
                                                      const std::string& output_dir,
                                                      const Launch& launch);
  ManifestWritten WriteManifest(const CheckpointCommitted& committed);
  LogChunk ReadLog(const muster::ReadLog& request);
  CheckpointScrubbed Scrub(const ScrubCheckpoint& order, const BeforeRead& before_read);
  bool ShardIsBeingWritten(const std::string& account, const std::vector<std::string>& output_dirs);
  // SIGKILL to the guardian that its record names, by a process that can end no other account's.
  Status EndGuardian(const std::string& account, const std::string& ranks_dir, const JobId& job);
  // Not given while the account's processes cannot be looked at.
  std::optional<TerminationProof> ProveTerminated(const std::string& account,
                                                  const std::string& ranks_dir, const JobId& job,
                                                  Generation generation);
  void RemoveRanksDirectory(const std::string& account, const std::string& ranks_dir);

 private:
  struct Server {
    std::mutex mutex;
    PacketSocket socket;
    std::uint64_t number = 0;  // how often one was started
  };
  using Json = nlohmann::json;
  // Answers what the server asks in between, and moves the call's deadline by what that took and by
  // what the server has to do then. Its error ends the call.
  using Between = std::function<Result<Json>(const Json& asked, Deadline* deadline)>;

  // Within `limit`, but for what `between` allows.
  Result<Json> Call(const std::string& account, const Json& call, Duration limit,
                    const Between& between = {});
  // The socket of a new call, and the number of its server. `*server` in: the one that has closed
  // the call before, and is not asked again; 0: none has.
  Result<UniqueFd> Open(const std::string& account, std::uint64_t* server);

  std::optional<Launcher> launcher_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Server>> servers_;  // by account
};

}  // namespace muster::worker
