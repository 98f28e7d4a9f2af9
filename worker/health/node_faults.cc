#include "worker/health/node_faults.h"

#include <signal.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/telemetry/log.h"
#include "worker/agent/job_records.h"
#include "worker/guardian/protocol.h"
#include "worker/process/record_file.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{100};

// 0: no guardian lives there.
pid_t LivingGuardian(const std::string& job_dir) {
  const std::string path = job_dir + "/" + kGuardianRecordName;
  if (!IsRecordLocked(path)) return 0;
  const auto text = ReadFile(path);
  if (!text.ok()) return 0;
  const auto json = nlohmann::json::parse(*text, nullptr, false);
  if (!json.is_object() || !json.contains("pid") || !json["pid"].is_number_integer()) return 0;
  return json["pid"].get<pid_t>();
}

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
  return InvalidArgument("a node has no fault '" + kind + "'; there are kill-node and stop-worker");
}

void KillGuardians(const std::string& jobs_dir) {
  const std::vector<ProcessInfo> table = ReadProcessTable();
  for (const std::string& job : ListJobs(jobs_dir)) {
    const pid_t guardian = LivingGuardian(jobs_dir + "/" + job);
    if (guardian <= 1) continue;
    // The guardian first, so that it starts nothing new.
    ::kill(-guardian, SIGKILL);
    ::kill(guardian, SIGKILL);
    for (const pid_t pid : LivingDescendants(table, guardian)) ::kill(pid, SIGKILL);
  }
}

}  // namespace muster::worker
