#include "worker/allocation/supervisor_loop.h"

#include <signal.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <utility>
#include <variant>

#include "common/base/files.h"
#include "common/rpc/token.h"
#include "common/slurm/slurm_output.h"
#include "worker/allocation/allocation_security.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{20};
constexpr seconds kRecordAgain{1};
constexpr seconds kCarryLogs{1};
constexpr seconds kAskScheduler{60};

AllocationEndingOptions EndingOptions(const SupervisorOptions& options) {
  return {.index = options.self.index,
          .ask_interval = options.election.AskInterval(),
          .silence = options.election.silence};
}

}  // namespace

SupervisorLoop::SupervisorLoop(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler,
                               SharedDir shared)
    : options_(std::move(options)),
      scheduler_(std::move(scheduler)),
      shared_(std::move(shared)),
      local_{options_.local_dir},
      signals_(loop_.context(), SIGTERM, SIGINT, SIGUSR1),
      self_(options_.self),
      election_(options_.election, SystemClock().Now()),
      duties_(loop_,
              {.job_yaml = options_.job_yaml,
               .key = options_.allocation,
               .node_names = options_.node_names,
               .monitor = options_.monitor},
              {.on_ending = [this](const Ending& ending) { Propose(ending); },
               .on_hung =
                   [this] {
                     programs_->KillCoordinator();
                     OnCoordinatorDown("it has answered nothing for half a minute");
                   }}),
      ending_(EndingOptions(options_)),
      tick_timer_(loop_),
      decision_timer_(loop_),
      finish_timer_(loop_) {
  signals_.add(SIGUSR2);
}

Status SupervisorLoop::Begin() {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(local_.CoordinatorDir(), 0700));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(local_.NodeDir(self_.node), 0700));
  MUSTER_RETURN_IF_ERROR(MakeAllocationCredentials(
      {options_.allocation, shared_.Security(), options_.local_dir, self_.node}));
  programs_ = std::make_unique<NodePrograms>(
      loop_, spawner_,
      NodeProgramsOptions{.binary_dir = options_.binary_dir,
                          .local_dir = options_.local_dir,
                          .logs_dir = shared_.Logs(),
                          .journal = shared_.Journal(),
                          .node = self_.node,
                          .address = options_.self.address,
                          .lease_seconds = options_.lease_seconds,
                          .log_level = options_.log_level,
                          .has_worker = options_.has_worker,
                          .worker_arguments = options_.worker_arguments},
      CoordinatorChild::Handlers{
          .on_up = [this](const Endpoint& endpoint) { OnCoordinatorUp(endpoint); },
          .on_down = [this](const std::string& why) { OnCoordinatorDown(why); }});
  MUSTER_ASSIGN_OR_RETURN(
      peers_, PeerLink::Listen(loop_,
                               {.allocation = options_.allocation,
                                .run = options_.run,
                                .address = self_.address,
                                .answers_with = CoordinatorCredentials(options_.local_dir),
                                .asks_with = NodeCredentials(options_.local_dir)},
                               [this](const PeerView& peer) {
                                 Absorb(peer);
                                 if (ending_.ending()) ending_.OnAsked(peer.self.index);
                                 return View();
                               }));
  self_.address = peers_->address();
  return shared_.WriteMember(self_);
}

int SupervisorLoop::Run() {
  AwaitSignal();
  loop_.Post([this] { Tick(); });
  loop_.Run();
  return exit_code_.value_or(kExitRequeue);
}

void SupervisorLoop::Tick() {
  if (stopped_) return;
  const TimePoint now = SystemClock().Now();
  if (!ending_.ending() && !exit_code_) {
    election_.Tick(now);
    RefreshRecord();
    if (election_.leading()) {
      if (now >= ask_scheduler_at_) AskScheduler();
      Heartbeat();
      duties_.Tick({.missing = MissingNodes(), .without_worker = NodesWithoutWorker()}, now);
    }
    Act();
  }
  TickEnd();
  CarryLogs();
  tick_timer_.Start(kTick, [this] { Tick(); });
}

void SupervisorLoop::Act() {
  for (const ElectionEffect& effect : election_.TakeEffects())
    std::visit([this](const auto& e) { Do(e); }, effect);
}

// --- other supervisors ---

void SupervisorLoop::Absorb(const PeerView& peer) {
  const TimePoint now = SystemClock().Now();
  if (peer.stop_seconds >= 0)
    duties_.monitor().OnStopNotice(now + FromSeconds(peer.stop_seconds), peer.stop_reason);
  election_.OnAnswer(peer, now);
  if (!peer.ending) return;
  const int leader = election_.leadership().leader.index;
  Decide(*peer.ending, election_.Alive(leader, now) ? leader : peer.self.index);
}

void SupervisorLoop::Do(const AskPeer& ask) {
  const auto member = election_.members().find(ask.index);
  if (member == election_.members().end()) return;
  peers_->Ask(member->second.address, View(), kQuestionLimit,
              [this, index = ask.index](const Result<PeerView>& answer) {
                if (answer.ok()) return Absorb(*answer);
                const bool refused = answer.status().code() == StatusCode::kUnavailable;
                election_.OnSilence(index, refused, SystemClock().Now());
              });
}

void SupervisorLoop::Do(const ReadShared& read) {
  if (std::exchange(reading_, true)) return;
  struct Found {
    bool superseded = false;
    std::optional<std::vector<Member>> members;
    std::optional<LeaderRecord> leader;
    std::optional<Outcome> outcome;
  };
  OnPool(
      files_,
      [this, members = read.members] {
        Found found{shared_.IsSuperseded(), {}, shared_.ReadLeadership(), shared_.ReadOutcome()};
        if (members) found.members = shared_.ReadMembers();
        return found;
      },
      [this](const Found& found) {
        reading_ = false;
        if (ending_.ending() || exit_code_) return;
        if (found.superseded) return LeaveOut("a later run of this job, or another step, has it");
        const TimePoint now = SystemClock().Now();
        if (found.leader) {
          election_.OnShared(found.members, found.leader->leadership, found.leader->heartbeat, now);
        } else {
          election_.OnShared(found.members, std::nullopt, 0, now);
        }
        if (!found.outcome) return;
        Decide(found.outcome->ending, election_.leadership().leader.index);
        ending_.OnNote(found.outcome->closed, now);
      });
}

// Writing to the directory makes an NFS client read it again.
void SupervisorLoop::RefreshRecord() {
  const TimePoint now = SystemClock().Now();
  if (election_.leadership().epoch > 0 || now < record_at_ || std::exchange(recording_, true))
    return;
  record_at_ = now + kRecordAgain;
  OnPool(
      files_, [this, self = self_] { return shared_.WriteMember(self); },
      [this](const Status& status) {
        recording_ = false;
        if (!status.ok()) Log().warn("others may not find this node: {}", status.message());
      });
}

void SupervisorLoop::Do(const Announce&) {
  heartbeat_at_ = {};
  Heartbeat();
}

// A node that reaches no other over the network sees by it that there is a leader.
void SupervisorLoop::Heartbeat() {
  const TimePoint now = SystemClock().Now();
  if (now < heartbeat_at_ || std::exchange(writing_heartbeat_, true)) return;
  heartbeat_at_ = now + kRecordHeartbeat;
  const LeaderRecord record{election_.leadership(),
                            static_cast<std::uint64_t>(SystemClock().UnixMillis())};
  OnPool(
      files_,
      [this, record]() -> Status {
        // A later leader's stays.
        const auto found = shared_.ReadLeadership();
        if (found && found->leadership.epoch > record.leadership.epoch) return OkStatus();
        return shared_.WriteLeadership(record);
      },
      [this](const Status& status) {
        writing_heartbeat_ = false;
        if (!status.ok())
          Log().error("the others cannot find the coordinator: {}", status.message());
      });
}

void SupervisorLoop::CarryLogs() {
  const TimePoint now = SystemClock().Now();
  if (now < carry_at_ || std::exchange(carrying_, true)) return;
  carry_at_ = now + kCarryLogs;
  OnPool(
      files_, [this] { return programs_->CarryLogs(); },
      [this](const Status& status) {
        carrying_ = false;
        if (!status.ok()) Log().warn("a log is not in the shared directory: {}", status.message());
      });
}

// --- coordinator ---

// A supervisor that was stopped for long may be outdated, and its coordinator would fence that of
// the current run.
void SupervisorLoop::Do(const StartCoordinator&) {
  start_wanted_ = true;
  OnPool(
      files_, [this] { return shared_.IsSuperseded(); },
      [this](bool superseded) {
        if (superseded) return LeaveOut("a later run of this job, or another step, has it");
        if (std::exchange(start_wanted_, false) && !ending_.ending()) programs_->StartCoordinator();
      });
}

void SupervisorLoop::Do(const StopCoordinator&) {
  Log().warn("another node's coordinator has taken over; ending the one of this node");
  start_wanted_ = false;
  programs_->KillCoordinator();
  duties_.Forget();
  election_.OnCoordinatorDown(SystemClock().Now());
}

void SupervisorLoop::OnCoordinatorUp(const Endpoint& endpoint) {
  const auto token = LoadToken(local_.Token());
  if (!token.ok()) {
    programs_->KillCoordinator();
    return OnCoordinatorDown(token.status().message());
  }
  const TimePoint now = SystemClock().Now();
  const bool first = election_.leadership().epoch == 0;
  duties_.OnCoordinatorUp(endpoint, *token, first, now);
  election_.OnCoordinatorUp({endpoint.epoch, self_, endpoint.grpc_tls, endpoint.http_tls}, now);
  Act();
  if (!first) return;
  OnPool(
      files_,
      [this] {
        shared_.RemoveOldKeys();
        return true;
      },
      [](bool) {});
}

void SupervisorLoop::OnCoordinatorDown(const std::string& why) {
  if (!ending_.ending()) Log().error("the coordinator of this node is gone: {}", why);
  duties_.OnCoordinatorGone();
  election_.OnCoordinatorDown(SystemClock().Now());
}

void SupervisorLoop::Do(const Follow& follow) {
  const Leadership& leadership = follow.leadership;
  Log().info("following the coordinator of {}, epoch {}, at {}", leadership.leader.node,
             leadership.epoch, leadership.grpc);
  programs_->Follow(leadership, leadership.leader.index == self_.index);
}

// --- signals and time ---

void SupervisorLoop::AwaitSignal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    OnSignal(signal);
    AwaitSignal();
  });
}

// SIGUSR1 and SIGUSR2 are sent before the end, to all tasks; the leader knows when that is, or
// asks, because a preemption has only just set it. SIGTERM begins it.
void SupervisorLoop::OnSignal(int signal) {
  if (ending_.ending()) return;
  const TimePoint now = SystemClock().Now();
  const Duration grace = TermGrace();
  const std::string name = ::sigabbrev_np(signal);
  const std::string reason = "the allocation received SIG" + name;
  Log().warn("SIG{}: the allocation is about to end", name);
  JobMonitor& course = duties_.monitor();
  if (signal == SIGTERM || signal == SIGINT) return course.OnStopNotice(now + grace, reason);
  if (!election_.leading()) return;
  course.OnEndIsNear(reason, grace, now);
  ask_scheduler_at_ = now;
}

// The leader's value counts if it is the shortest, because only the leader asks the scheduler.
Duration SupervisorLoop::TermGrace() const {
  if (options_.term_seconds) return FromSeconds(*options_.term_seconds);
  if (!kill_wait_seconds_) return FromSeconds(slurm::kMostTermGraceSeconds);
  return FromSeconds(
      std::min(slurm::TermGraceSeconds(*kill_wait_seconds_), slurm::kMostTermGraceSeconds));
}

void SupervisorLoop::AskScheduler() {
  if (std::exchange(asking_scheduler_, true)) return;
  ask_scheduler_at_ = SystemClock().Now() + kAskScheduler;
  struct Answer {
    Result<std::optional<std::int64_t>> end = std::optional<std::int64_t>();
    std::optional<std::int64_t> kill_wait;
  };
  OnPool(
      commands_,
      [this, known = kill_wait_seconds_, wanted = !options_.term_seconds] {
        Answer answer{scheduler_->EndUnixSeconds(), known};
        if (known || !wanted) return answer;
        // Without an answer the usual time of most clusters is used.
        if (const auto wait = scheduler_->KillWaitSeconds(); wait.ok()) answer.kill_wait = *wait;
        return answer;
      },
      [this](const Answer& answer) {
        asking_scheduler_ = false;
        kill_wait_seconds_ = answer.kill_wait;
        if (!answer.end.ok())
          return Log().warn("when the allocation's time ends is not known: {}",
                            answer.end.status().message());
        if (!*answer.end) return;
        const double left = static_cast<double>(**answer.end) -
                            static_cast<double>(SystemClock().UnixMillis()) / 1000;
        duties_.monitor().SetEndTime(SystemClock().Now() + FromSeconds(left), SystemClock().Now());
      });
}

}  // namespace muster::worker
