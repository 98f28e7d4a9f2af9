#include "worker/health/node_faults.h"

#include <signal.h>
#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/base/proc_reader.h"
#include "common/process/process_id.h"
#include "common/telemetry/log.h"
#include "worker/agent/job_records.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{100};

}  // namespace

NodeFaults::NodeFaults(EventLoop& loop, std::string jobs_dir)
    : jobs_dir_(std::move(jobs_dir)), timer_(loop) {}

Status NodeFaults::Inject(const std::string& kind) {
  if (kind == "kill-node") {
    Log().warn("a fault was asked for: everything of this node ends");
    timer_.Start(kAnswerTime, [this] {
      KillGuardians(jobs_dir_);
      ::kill(::getpid(), SIGKILL);
    });
    return OkStatus();
  }
  if (kind == "stop-worker") {
    Log().warn("a fault was asked for: this worker stops until it gets SIGCONT");
    timer_.Start(kAnswerTime, [] { ::kill(::getpid(), SIGSTOP); });
    return OkStatus();
  }
  return InvalidArgument("unknown node fault '" + kind + "'; use kill-node or stop-worker");
}

void KillGuardians(const std::string& jobs_dir) {
  const std::vector<ProcessInfo> table = ReadProcessTable();
  for (const std::string& job : ListJobs(jobs_dir)) {
    const std::optional<ProcessId> guardian = GuardianOf(jobs_dir + "/" + job);
    // The guardian first, so that it starts no new processes. It was alive when the table was read,
    // too.
    if (!guardian || !SignalProcess(*guardian, SIGKILL)) continue;
    for (const ProcessId& id : LivingDescendants(table, guardian->pid)) SignalProcess(id, SIGKILL);
  }
}

}  // namespace muster::worker
