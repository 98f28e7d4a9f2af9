#include "worker/allocation/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <filesystem>
#include <set>
#include <type_traits>
#include <utility>

#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/worker_pool.h"
#include "common/telemetry/log.h"
#include "worker/allocation/allocation_security.h"
#include "worker/allocation/child_process.h"
#include "worker/allocation/coordinator_child.h"
#include "worker/allocation/job_client.h"
#include "worker/allocation/peer_link.h"
#include "worker/allocation/shared_dir.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kTick{20};
constexpr milliseconds kQuestionLimit{700};
constexpr milliseconds kJobPoll{200};
constexpr seconds kSubmitAgain{1};
constexpr seconds kRecordAgain{1};
constexpr seconds kAskScheduler{60};
// For the others to learn how the allocation ends, and for the own children to end.
constexpr seconds kTellLimit{4};
constexpr seconds kChildrenLimit{3};
constexpr milliseconds kFirstRestart{100};
constexpr seconds kLongestRestart{5};

}  // namespace

class Supervisor {
 public:
  Supervisor(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler);

  Status Begin();
  int Run();

 private:
  // What blocks runs on a pool's thread, and what becomes of it on the loop.
  template <typename Work, typename Then>
  void OnPool(WorkerPool& pool, Work work, Then then);

  void Tick();
  void Act();
  void Do(const AskPeer& ask);
  void Do(const ReadShared& read);
  void Do(const StartCoordinator&);
  void Do(const StopCoordinator&);
  void Do(const Announce& announce);
  void Do(const Follow& follow);
  void Do(const GiveUp&);

  PeerView View() const;
  void Absorb(const PeerView& peer);
  void RefreshRecord();

  void OnCoordinatorUp(const Endpoint& endpoint);
  void OnCoordinatorDown(const std::string& why);
  void StartWorker();
  void OnWorkerExit(const ProcessExit& exit);
  std::vector<std::string> WorkerCommand() const;
  std::vector<std::string> CoordinatorCommand() const;

  void LeadJob();
  void SubmitJob();
  void PollJob();
  void Do(const SuspendJob& order);
  void Do(const ResumeJob&);
  void Do(const Ending& ending);
  std::vector<std::string> MissingNodes() const;

  void AwaitSignal();
  void OnSignal(int signal);
  void AskScheduler();

  void Leave(const Ending& ending);
  bool EverybodyKnows() const;
  void FinishAllocation();
  void EndChildren();
  void Exit();

  const SupervisorOptions options_;
  const std::unique_ptr<Scheduler> scheduler_;
  const SharedDir shared_;
  const ClusterPaths local_;
  EventLoop loop_;
  boost::asio::signal_set signals_;
  Member self_;
  Election election_;
  JobCourse course_;
  std::unique_ptr<PeerLink> peers_;
  std::unique_ptr<CoordinatorChild> coordinator_;
  std::unique_ptr<ChildProcess> worker_;
  std::unique_ptr<JobClient> jobs_;
  std::string job_id_;
  bool reading_ = false;
  bool polling_ = false;
  bool submitting_ = false;
  bool asking_scheduler_ = false;
  TimePoint poll_at_{};
  TimePoint submit_at_{};
  TimePoint record_at_{};
  TimePoint ask_scheduler_at_{};
  Duration worker_pause_ = kFirstRestart;
  TimePoint worker_started_{};
  std::set<int> told_;  // members that know how it ends
  std::optional<Ending> ending_;
  TimePoint tell_until_{};
  bool gave_up_ = false;
  bool finishing_ = false;
  bool exiting_ = false;
  std::optional<TimePoint> children_by_;
  Timer tick_timer_;
  Timer worker_timer_;
  // Joined before what their work uses is gone.
  WorkerPool files_{"shared-dir", 1, 64};
  WorkerPool commands_{"scheduler", 1, 8};
};

Supervisor::Supervisor(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler)
    : options_(std::move(options)),
      scheduler_(std::move(scheduler)),
      shared_(options_.shared_dir, options_.run),
      local_{options_.local_dir},
      signals_(loop_.context(), SIGTERM, SIGINT, SIGUSR1),
      self_(options_.self),
      election_(options_.election, SystemClock().Now()),
      course_(options_.course),
      tick_timer_(loop_),
      worker_timer_(loop_) {
  signals_.add(SIGUSR2);
}

template <typename Work, typename Then>
void Supervisor::OnPool(WorkerPool& pool, Work work, Then then) {
  const bool taken = pool.TrySubmit([this, work = std::move(work), then = std::move(then)] {
    auto result = work();
    loop_.Post([then, result = std::move(result)] { then(result); });
  });
  if (!taken) Log().warn("the shared directory does not answer: something is left out");
}

Status Supervisor::Begin() {
  MUSTER_RETURN_IF_ERROR(shared_.Make());
  MUSTER_RETURN_IF_ERROR(MakeDirectories(local_.CoordinatorDir(), 0700));
  MUSTER_RETURN_IF_ERROR(MakeDirectories(local_.NodeDir(self_.node), 0700));
  MUSTER_RETURN_IF_ERROR(MakeAllocationCredentials(
      {options_.allocation, shared_.Security(), options_.local_dir, self_.node}));
  MUSTER_ASSIGN_OR_RETURN(
      peers_, PeerLink::Listen(loop_,
                               {.allocation = options_.allocation,
                                .run = options_.run,
                                .address = self_.address,
                                .answers_with = CoordinatorCredentials(options_.local_dir),
                                .asks_with = NodeCredentials(options_.local_dir)},
                               [this](const PeerView& peer) {
                                 Absorb(peer);
                                 if (ending_) told_.insert(peer.self.index);
                                 return View();
                               }));
  self_.address = peers_->address();
  return shared_.WriteMember(self_);
}

int Supervisor::Run() {
  AwaitSignal();
  loop_.Post([this] { Tick(); });
  loop_.Run();
  return ending_ ? ending_->exit_code : kExitRequeue;
}

void Supervisor::Tick() {
  const TimePoint now = SystemClock().Now();
  if (!ending_) {
    election_.Tick(now);
    RefreshRecord();
    if (election_.leading()) LeadJob();
    Act();
  } else if (children_by_) {
    if (!worker_ && !coordinator_) return Exit();
    if (now >= *children_by_) return Exit();
  } else if (!finishing_ && (EverybodyKnows() || now >= tell_until_)) {
    FinishAllocation();
  }
  if (!exiting_) tick_timer_.Start(kTick, [this] { Tick(); });
}

void Supervisor::Act() {
  for (const ElectionEffect& effect : election_.TakeEffects())
    std::visit([this](const auto& e) { Do(e); }, effect);
}

// --- others ---

PeerView Supervisor::View() const {
  PeerView view{.self = self_,
                .run = options_.run,
                .leadership = election_.leadership(),
                .unfit = election_.unfit(),
                .stop_reason = {},
                .ending = ending_};
  if (course_.stop_by()) {
    view.stop_seconds = std::max(0.0, ToSeconds(*course_.stop_by() - SystemClock().Now()));
    view.stop_reason = course_.stop_reason();
  }
  return view;
}

void Supervisor::Absorb(const PeerView& peer) {
  const TimePoint now = SystemClock().Now();
  if (peer.stop_seconds >= 0)
    course_.OnStopNotice(now + FromSeconds(peer.stop_seconds), peer.stop_reason);
  election_.OnAnswer(peer, now);
  // Of the leader that is followed: another's may be what it heard of an older one.
  if (peer.ending && !ending_) Leave(*peer.ending);
}

void Supervisor::Do(const AskPeer& ask) {
  const auto member = election_.members().find(ask.index);
  if (member == election_.members().end()) return;
  peers_->Ask(member->second.address, View(), kQuestionLimit,
              [this, index = ask.index](const Result<PeerView>& answer) {
                if (answer.ok()) return Absorb(*answer);
                const bool refused = answer.status().code() == StatusCode::kUnavailable;
                election_.OnSilence(index, refused, SystemClock().Now());
              });
}

void Supervisor::Do(const ReadShared& read) {
  if (std::exchange(reading_, true)) return;
  struct Found {
    std::optional<std::vector<Member>> members;
    std::optional<Leadership> leadership;
    std::optional<Ending> ending;
  };
  OnPool(
      files_,
      [this, members = read.members] {
        Found found{{}, shared_.ReadLeadership(), shared_.ReadEnding()};
        if (members) found.members = shared_.ReadMembers();
        return found;
      },
      [this](const Found& found) {
        reading_ = false;
        if (ending_) return;
        if (found.ending) return Leave(*found.ending);
        election_.OnShared(found.members, found.leadership, SystemClock().Now());
      });
}

// Writing to the directory makes an NFS client look into it anew.
void Supervisor::RefreshRecord() {
  const TimePoint now = SystemClock().Now();
  if (election_.leadership().epoch > 0 || now < record_at_) return;
  record_at_ = now + kRecordAgain;
  OnPool(
      files_, [this, self = self_] { return shared_.WriteMember(self); },
      [](const Status& status) {
        if (!status.ok()) Log().warn("others may not find this node: {}", status.message());
      });
}

void Supervisor::Do(const Announce& announce) {
  OnPool(
      files_,
      [this, leadership = announce.leadership] { return shared_.WriteLeadership(leadership); },
      [](const Status& status) {
        if (!status.ok())
          Log().error("the others cannot find the coordinator: {}", status.message());
      });
}

// --- coordinator and worker ---

std::vector<std::string> Supervisor::CoordinatorCommand() const {
  const std::string host = options_.self.address;
  return {options_.binary_dir + "/muster-coordinator",
          "--dir",
          options_.local_dir,
          "--journal",
          shared_.Journal(),
          "--listen",
          "127.0.0.1:0",
          "--tls-listen",
          host + ":0",
          "--tls-http",
          host + ":0",
          "--tls",
          CoordinatorCredentials(options_.local_dir),
          "--lease",
          std::to_string(options_.lease_seconds) + "s",
          "--log-level",
          options_.log_level};
}

std::vector<std::string> Supervisor::WorkerCommand() const {
  std::vector<std::string> command = {options_.binary_dir + "/muster-worker",
                                      "--dir",
                                      options_.local_dir,
                                      "--node",
                                      self_.node,
                                      "--address",
                                      options_.self.address,
                                      "--endpoint",
                                      options_.local_dir + "/endpoint.json",
                                      "--tls",
                                      NodeCredentials(options_.local_dir),
                                      "--log-level",
                                      options_.log_level};
  command.insert(command.end(), options_.worker_arguments.begin(), options_.worker_arguments.end());
  return command;
}

void Supervisor::Do(const StartCoordinator&) {
  Log().info("starting a coordinator on this node");
  coordinator_ = std::make_unique<CoordinatorChild>(
      loop_,
      CoordinatorChild::Options{.argv = CoordinatorCommand(),
                                .endpoint_path = local_.Endpoint(),
                                .log_path = shared_.Logs() + "/coordinator-" + self_.node + ".log"},
      CoordinatorChild::Handlers{
          .on_up = [this](const Endpoint& endpoint) { OnCoordinatorUp(endpoint); },
          .on_down = [this](const std::string& why) { OnCoordinatorDown(why); }});
}

void Supervisor::Do(const StopCoordinator&) {
  Log().warn("another node's coordinator has taken over; ending the one of this node");
  coordinator_.reset();
  jobs_.reset();
  election_.OnCoordinatorDown(SystemClock().Now());
}

void Supervisor::OnCoordinatorUp(const Endpoint& endpoint) {
  const auto token = LoadToken(local_.Token());
  if (!token.ok()) return OnCoordinatorDown(token.status().message());
  jobs_ = std::make_unique<JobClient>(loop_, endpoint, *token);
  job_id_.clear();
  submitting_ = polling_ = false;
  course_.OnCoordinatorChanged();
  election_.OnCoordinatorUp({endpoint.epoch, self_, endpoint.grpc_tls, endpoint.http_tls},
                            SystemClock().Now());
  Act();
}

void Supervisor::OnCoordinatorDown(const std::string& why) {
  if (!ending_) Log().error("the coordinator of this node is gone: {}", why);
  coordinator_.reset();
  jobs_.reset();
  election_.OnCoordinatorDown(SystemClock().Now());
}

void Supervisor::Do(const Follow& follow) {
  const Leadership& leadership = follow.leadership;
  Log().info("following the coordinator of {}, epoch {}, at {}", leadership.leader.node,
             leadership.epoch, leadership.grpc);
  const bool own = leadership.leader.index == self_.index;
  Endpoint endpoint;
  if (const auto local = own ? ReadEndpoint(local_.Endpoint()) : NotFound("elsewhere"); local.ok())
    endpoint = *local;
  endpoint.grpc_tls = leadership.grpc;
  endpoint.http_tls = leadership.http;
  endpoint.epoch = leadership.epoch;
  const Status written = WriteEndpoint(options_.local_dir + "/endpoint.json", endpoint);
  if (!written.ok())
    Log().error("this node's worker cannot be pointed there: {}", written.message());
  if (!worker_ && !worker_started_.time_since_epoch().count()) StartWorker();
}

void Supervisor::StartWorker() {
  worker_started_ = SystemClock().Now();
  auto worker =
      ChildProcess::Start(loop_, WorkerCommand(), shared_.Logs() + "/worker-" + self_.node + ".log",
                          [this](const ProcessExit& exit) { OnWorkerExit(exit); });
  if (worker.ok()) {
    worker_ = *std::move(worker);
    return;
  }
  Log().error("the worker cannot be started: {}", worker.status().message());
  worker_timer_.Start(kLongestRestart, [this] { StartWorker(); });
}

void Supervisor::OnWorkerExit(const ProcessExit& exit) {
  worker_.reset();
  if (ending_) return;
  const bool sound = SystemClock().Now() - worker_started_ > kLongestRestart * 2;
  worker_pause_ = sound ? kFirstRestart : std::min<Duration>(worker_pause_ * 2, kLongestRestart);
  Log().error("this node's worker ended with {}; another is started", DescribeExit(exit));
  worker_timer_.Start(worker_pause_, [this] { StartWorker(); });
}

// --- the job ---

std::vector<std::string> Supervisor::MissingNodes() const {
  const TimePoint now = SystemClock().Now();
  std::set<std::string> heard;
  for (const auto& [index, member] : election_.members())
    if (election_.Alive(index, now)) heard.insert(member.node);
  heard.insert(self_.node);
  std::vector<std::string> missing;
  for (const std::string& node : options_.node_names)
    if (heard.count(node) == 0) missing.push_back(node);
  return missing;
}

void Supervisor::LeadJob() {
  const TimePoint now = SystemClock().Now();
  if (now >= ask_scheduler_at_) AskScheduler();
  if (jobs_ && job_id_.empty() && now >= submit_at_) SubmitJob();
  if (jobs_ && !job_id_.empty() && now >= poll_at_) PollJob();
  course_.Tick(MissingNodes(), now);
  for (const CourseEffect& effect : course_.TakeEffects())
    std::visit([this](const auto& e) { Do(e); }, effect);
}

void Supervisor::SubmitJob() {
  if (std::exchange(submitting_, true)) return;
  submit_at_ = SystemClock().Now() + kSubmitAgain;
  jobs_->Submit(options_.job_yaml, options_.allocation, [this](const Result<std::string>& id) {
    submitting_ = false;
    if (id.ok()) {
      job_id_ = *id;
      return PollJob();
    }
    const StatusCode code = id.status().code();
    if (code == StatusCode::kInvalidArgument || code == StatusCode::kAlreadyExists)
      return course_.OnRefused(id.status());
    Log().warn("the job could not be submitted: {}; trying again", id.status().message());
  });
}

void Supervisor::PollJob() {
  if (std::exchange(polling_, true)) return;
  poll_at_ = SystemClock().Now() + kJobPoll;
  jobs_->Get(job_id_, [this](const Result<JobPicture>& job) {
    polling_ = false;
    if (job.ok()) course_.OnJob(*job);
  });
}

void Supervisor::Do(const SuspendJob& order) {
  if (!jobs_ || job_id_.empty()) return;
  Log().info("{}: the job is to be saved and suspended within {:.0f} s", order.reason,
             order.by_seconds);
  jobs_->Suspend(job_id_, order, [](const Status& status) {
    if (!status.ok()) Log().warn("the job was not suspended: {}", status.message());
  });
}

void Supervisor::Do(const ResumeJob&) {
  if (!jobs_ || job_id_.empty()) return;
  Log().info("resuming the job that the last run of this allocation suspended");
  jobs_->Resume(job_id_, [](const Status& status) {
    if (!status.ok()) Log().warn("the job was not resumed: {}", status.message());
  });
}

void Supervisor::Do(const Ending& ending) {
  const std::string action = ending.action == EndAction::kRequeue ? "requeue" : "done";
  OnPool(
      files_, [this, ending, action] { return shared_.WriteEnding(ending, action); },
      [](const Status& status) {
        if (!status.ok()) Log().error("how this ends could not be noted: {}", status.message());
      });
  Leave(ending);
}

void Supervisor::Do(const GiveUp&) {
  gave_up_ = true;
  Do(Ending{.exit_code = kExitRequeue,
            .action = EndAction::kRequeue,
            .reason = "no node of this allocation can run a coordinator; the logs are in " +
                      shared_.Logs(),
            .exclude = {}});
}

// --- signals and time ---

void Supervisor::AwaitSignal() {
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (error) return;
    OnSignal(signal);
    AwaitSignal();
  });
}

// SIGUSR1 and SIGUSR2 are sent ahead of the end, to all tasks; the leader knows when that is.
// SIGTERM begins it.
void Supervisor::OnSignal(int signal) {
  if (ending_) return;
  const TimePoint now = SystemClock().Now();
  const Duration grace = FromSeconds(options_.term_seconds);
  const std::string name = ::sigabbrev_np(signal);
  const std::string reason = "the allocation was told to end by SIG" + name;
  Log().warn("SIG{}: the allocation is about to end", name);
  if (signal == SIGTERM || signal == SIGINT) return course_.OnStopNotice(now + grace, reason);
  if (election_.leading()) course_.OnEndIsNear(reason, grace, now);
}

void Supervisor::AskScheduler() {
  if (std::exchange(asking_scheduler_, true)) return;
  ask_scheduler_at_ = SystemClock().Now() + kAskScheduler;
  OnPool(
      commands_, [this] { return scheduler_->Ask(); },
      [this](const Result<AllocationState>& state) {
        asking_scheduler_ = false;
        if (!state.ok())
          return Log().warn("when the allocation's time ends is not known: {}",
                            state.status().message());
        if (!state->end_unix_seconds) return;
        const double left = static_cast<double>(*state->end_unix_seconds) -
                            static_cast<double>(SystemClock().UnixMillis()) / 1000;
        course_.SetEndTime(SystemClock().Now() + FromSeconds(left), SystemClock().Now());
      });
}

// --- the end ---

void Supervisor::Leave(const Ending& ending) {
  if (ending_) return;
  Log().info("leaving with exit code {}: {}", ending.exit_code, ending.reason);
  ending_ = ending;
  tell_until_ = SystemClock().Now() + kTellLimit;
}

// Only whoever leads tells; the others go at once.
bool Supervisor::EverybodyKnows() const {
  if (!election_.leading()) return true;
  const TimePoint now = SystemClock().Now();
  return std::all_of(election_.members().begin(), election_.members().end(),
                     [&](const auto& entry) {
                       return entry.first == self_.index || told_.count(entry.first) > 0 ||
                              !election_.Alive(entry.first, now);
                     });
}

void Supervisor::FinishAllocation() {
  finishing_ = true;
  if (!election_.leading() && !gave_up_) return EndChildren();
  const std::vector<std::string> missing = MissingNodes();
  OnPool(
      commands_,
      [this, ending = *ending_, missing] {
        const Status status = CloseAllocation(*scheduler_, ending, missing);
        if (status.ok() && ending.action == EndAction::kRequeue)
          return shared_.WriteEnding(ending, "requeued");
        return status;
      },
      [this](const Status& status) {
        if (!status.ok()) Log().error("the scheduler was not told: {}", status.message());
        EndChildren();
      });
}

void Supervisor::EndChildren() {
  children_by_ = SystemClock().Now() + kChildrenLimit;
  worker_timer_.Cancel();
  if (worker_) worker_->Signal(SIGTERM);
  if (coordinator_) coordinator_->End();
}

void Supervisor::Exit() {
  exiting_ = true;
  coordinator_.reset();
  worker_.reset();
  if (election_.leading()) RemoveAllocationAuthority(shared_.Security());
  // It holds keys. Logs lie in the shared directory.
  std::error_code ignored;
  std::filesystem::remove_all(options_.local_dir, ignored);
  loop_.Stop();
}

Result<int> RunSupervisor(SupervisorOptions options, std::unique_ptr<Scheduler> scheduler) {
  Supervisor supervisor(std::move(options), std::move(scheduler));
  MUSTER_RETURN_IF_ERROR(supervisor.Begin());
  return supervisor.Run();
}

}  // namespace muster::worker
