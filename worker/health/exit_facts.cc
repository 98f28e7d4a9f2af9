#include "worker/health/exit_facts.h"

#include <signal.h>

#include <algorithm>

namespace muster::worker {
namespace {

constexpr std::size_t kMaxEvents = 256;

void AddFact(const std::string& fact, RankExited* exited) {
  auto& facts = exited->facts;
  if (std::find(facts.begin(), facts.end(), fact) == facts.end()) facts.push_back(fact);
}

struct Completer {
  pid_t pid;
  RankExited* exited;

  void operator()(const OomKillEvent& kill) const {
    // A process that ended otherwise shares only the pid with the process of the log.
    if (kill.pid != pid || exited->end.exit.signal != SIGKILL) return;
    exited->end.out_of_memory = true;
    AddFact("kernel log: out of memory " +
                std::string(kill.of_cgroup ? "in its cgroup" : "on the host") + ", process " +
                std::to_string(kill.pid) + " (" + kill.name + ") was ended",
            exited);
  }
  void operator()(const XidEvent& xid) const {
    if (xid.pid != pid) return;
    AddFact(
        "kernel log: Xid " + std::to_string(xid.xid) + " on GPU " + xid.device + ": " + xid.detail,
        exited);
  }
};

}  // namespace

void ExitFacts::OnStarted(const RankStarted& started) {
  Started& known = started_[{started.job, started.rank}];
  const auto pid = static_cast<pid_t>(started.pid);
  // A reused pid: earlier log lines belong to another process.
  if (known.pid != pid)
    std::erase_if(events_, [pid](const KernelEvent& event) {
      return std::visit([pid](const auto& e) { return e.pid == pid; }, event);
    });
  known = {started.generation, pid};
}

void ExitFacts::OnKernelEvent(const KernelEvent& event) {
  if (events_.size() >= kMaxEvents) events_.pop_front();
  events_.push_back(event);
}

void ExitFacts::OnReleased(const JobId& job) {
  std::erase_if(started_, [&](const auto& entry) { return std::get<JobId>(entry.first) == job; });
}

void ExitFacts::Complete(RankExited* exited) const {
  if (!same_pids_) return;
  const auto started = started_.find({exited->job, exited->rank});
  if (started == started_.end() || started->second.generation != exited->generation) return;
  for (const KernelEvent& event : events_)
    std::visit(Completer{started->second.pid, exited}, event);
}

void ExitFacts::Complete(std::vector<HostedGeneration>* hosted) const {
  for (HostedGeneration& generation : *hosted)
    for (RankExited& exited : generation.exited) Complete(&exited);
}

}  // namespace muster::worker
