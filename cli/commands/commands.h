// The commands of muster, one function each: options in, exit code or error out. app.cc binds them
// to the command line; a command knows nothing of flags.
//
// Data goes to the terminal's `out`, everything else to `err`. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/cluster_client.h"
#include "cli/interrupt.h"
#include "cli/local_cluster.h"
#include "cli/output.h"
#include "common/base/result.h"

namespace muster {

struct CommandContext {
  ClusterClient& client;
  Terminal& terminal;
  OutputFormat output = OutputFormat::kTable;

  const std::string& dir() const { return client.dir(); }
  Interrupt& interrupt() { return client.interrupt(); }
};

// What a command ends with when nothing went wrong on the way: an exit code (exit_code.h).
using CommandResult = Result<int>;

CommandResult RunUp(CommandContext& context, const UpOptions& options);

struct DownOptions {
  Duration timeout = std::chrono::seconds(10);  // until SIGKILL
};
CommandResult RunDown(CommandContext& context, const DownOptions& options);

enum class SubmitFollow { kNone, kWait, kAttach };
struct SubmitOptions {
  std::string file;  // "-": standard input
  std::string key;   // empty: a random one
  std::string name;  // empty: the file's
  std::optional<int> priority;
  std::vector<std::string> overrides;
  std::string accelerate_config;  // of accelerate or DeepSpeed; empty: none
  SubmitFollow follow = SubmitFollow::kNone;
};
CommandResult RunSubmit(CommandContext& context, const SubmitOptions& options);

struct ConfigOptions {
  std::string file = "job.yaml";             // to write; must not exist
  bool yes = false;                          // ask nothing
  std::map<std::string, std::string> given;  // by the key of a question; "": not given
};
// Writes a job file of what is answered; needs no cluster.
CommandResult RunConfig(CommandContext& context, const ConfigOptions& options, std::istream& in);

struct AttachOptions {
  std::string job;
  bool show_history = true;  // events from before
  // Called again and again while no coordinator answers, where one may come up elsewhere; it waits,
  // and tells people what it waits for. An error ends the following with it. None: a coordinator
  // that answered before is waited for, for half a minute.
  std::function<Status(const std::function<void(const std::string&)>& notice)> await_coordinator;
  std::string attach_again;  // the command that does; empty: this one, of this cluster
};
CommandResult RunAttach(CommandContext& context, const AttachOptions& options);

struct WaitOptions {
  std::string job;
  std::optional<Duration> timeout;
  bool show_progress = false;  // on standard error
};
CommandResult RunWait(CommandContext& context, const WaitOptions& options);

struct GetOptions {
  std::string job;  // empty: all jobs
  bool all = false;
};
CommandResult RunGet(CommandContext& context, const GetOptions& options);

struct GoodputOptions {
  std::vector<std::string> jobs;  // these alone; none: all, and the cluster
  bool all = false;
};
CommandResult RunGoodput(CommandContext& context, const GoodputOptions& options);

CommandResult RunDescribe(CommandContext& context, const std::string& job);

struct LogsOptions {
  std::string job;
  std::optional<int> rank;
  std::int64_t generation = 0;  // 0: the newest
  bool follow = false;
  std::optional<int> tail;  // lines per rank
  bool from_first = false;  // when following: of all attempts, not from the newest on
  // Only these local ranks of a node with so many; nothing: all.
  std::optional<std::set<int>> local_ranks;
  int ranks_per_node = 1;
  // Asked when following is interrupted: true goes on. None: it ends.
  std::function<bool()> on_interrupt;
};
CommandResult RunLogs(CommandContext& context, const LogsOptions& options);

struct CancelOptions {
  std::string job;
  std::string reason;
};
CommandResult RunCancel(CommandContext& context, const CancelOptions& options);

struct SuspendOptions {
  std::string job;
  std::optional<Duration> by;  // ranks that have not saved by then are ended
  std::string reason;
  bool wait = false;  // until it is suspended; kExitError where it ended in another way
};
CommandResult RunSuspend(CommandContext& context, const SuspendOptions& options);
CommandResult RunResume(CommandContext& context, const std::string& job);

struct RunOptions {
  std::vector<std::string> arguments;  // torchrun's flags, the script, its arguments
  bool print_job = false;              // the job file, and nothing is run
};
// Runs a script as torchrun does and shows what its ranks print. An interrupt cancels the job; a
// second one no longer waits for its end.
CommandResult RunTorchrun(CommandContext& context, const RunOptions& options);

struct EventsOptions {
  std::string job;
  bool follow = false;
};
CommandResult RunEvents(CommandContext& context, const EventsOptions& options);

struct CheckpointsOptions {
  std::string job;
  bool verify = false;  // have them read again first; kExitError when one is damaged
};
// The committed checkpoints of a job, newest last.
CommandResult RunCheckpoints(CommandContext& context, const CheckpointsOptions& options);

struct NodesOptions {
  std::vector<std::string> nodes;  // these alone; none: all
  bool report = false;  // what they say of their networks and devices instead of the list
};
CommandResult RunNodes(CommandContext& context, const NodesOptions& options);

struct DrainOptions {
  std::string node;
  std::optional<Duration> by;  // what still runs then is ended
  std::string reason;
  bool wait = false;  // until nothing is left on it
};
CommandResult RunDrain(CommandContext& context, const DrainOptions& options);
CommandResult RunUndrain(CommandContext& context, const std::string& node);

struct FaultOptions {
  std::string job;  // of a rank of it, else of `node`
  int rank = 0;
  std::string node;
  std::string kind;  // as on the command line: "kill", "slow=30%"
};
CommandResult RunFault(CommandContext& context, const FaultOptions& options);

struct TopOptions {
  std::string job;  // empty: all of the cluster
  Duration interval = std::chrono::seconds(1);
  bool once = false;  // one picture, and no screen is taken over
};
// A live view of the cluster or a job; without a terminal, one picture.
CommandResult RunTop(CommandContext& context, const TopOptions& options);

// Where a browser finds the status page, with its key, and how from another machine.
CommandResult RunPage(CommandContext& context);

CommandResult RunVersion(CommandContext& context);

struct FaultKind {
  std::string kind;
  std::string argument;  // as the coordinator takes it: "0.3000" of slow=30%
};
Result<FaultKind> ParseFaultKind(const std::string& text);

// "30d", "12h", "90m", "30s", "1.5s".
Result<Duration> ParseDuration(const std::string& text);

}  // namespace muster
