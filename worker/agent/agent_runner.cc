#include "worker/agent/agent_runner.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/base/files.h"
#include "common/base/ignored_signals.h"
#include "common/base/locked_record.h"
#include "common/process/spawn.h"
#include "common/telemetry/log.h"
#include "worker/agent/job_records.h"
#include "worker/process/record_file.h"
#include "worker/process/unix_socket.h"

namespace muster::worker {
namespace {

// Guardians answer in a millisecond; one that does not in this time is stopped or stuck, and the
// other jobs on the node must not wait for it.
constexpr std::chrono::seconds kAdoptionBudget{3};
constexpr std::chrono::milliseconds kDefaultProgressInterval{900};
constexpr std::chrono::milliseconds kReconnectPause{10};
constexpr int kReconnectAttempts = 100;
constexpr std::chrono::seconds kStuckPause{5};
// Longer than a guardian tries to end its processes.
constexpr std::chrono::seconds kReleaseBudget{7};
constexpr char kBusy[] =
    "the node waits for storage of this job that does not answer; try again when it does";
// Where the guardian finds its end of the first connection.
constexpr int kHandedOverFd = 3;

Status StartDetachedGuardian(const AgentRunnerOptions& options, const std::string& job_dir,
                             const JobId& job, const PacketSocket& guardian_end) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(job_dir, kPrivateDirectory));
  const std::string log_path = job_dir + "/" + kGuardianLogName;
  const UniqueFd log(
      ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, kPrivateFile));
  if (!log.valid()) return ErrnoStatus(errno, "open " + log_path);
  SpawnOptions spawn{
      .argv = {options.launch.guardian_path, "--dir", job_dir, "--job", job.value, "--worker-fd",
               std::to_string(kHandedOverFd), "--devices", options.devices_dir},
      .working_directory = job_dir,
      .output_fd = log.get(),
      .inherited = {{guardian_end.fd(), kHandedOverFd}},
      .ignored_signals = IgnoredNotices()};
  for (const auto& [name, value] : options.launch.passed_through)
    spawn.environment.push_back(name + "=" + value);
  return SpawnDetached(spawn);
}

// As the account of the job, or as this process's user.
Status StartGuardianOf(const AgentRunnerOptions& options, const OwnerFiles& files,
                       const std::string& account, const std::string& job_dir, const JobId& job,
                       const PacketSocket& guardian_end) {
  if (files.launcher() == nullptr)
    return StartDetachedGuardian(options, job_dir, job, guardian_end);
  return files.launcher()->StartGuardian(account, job.value, options.devices_dir,
                                         guardian_end.fd());
}

// The record before the resume file of this directory, which means that the ranks in the record
// were launched; what they resume from before both.
Status WriteLaunchFiles(OwnerFiles& files, const Launch& launch, const Prepare& prepare,
                        const std::string& job_dir, const std::string& ranks_dir) {
  if (files.launcher() != nullptr)
    MUSTER_RETURN_IF_ERROR(files.WriteResumeFile(prepare.account, launch, ranks_dir));
  MUSTER_RETURN_IF_ERROR(WriteJobRecord(job_dir, prepare));
  return WriteResumeFile(launch, job_dir);
}

// Whose directory it is, which the kernel says; kNoOtherUser: it is not there.
std::int64_t OwnerOf(const std::string& ranks_dir) {
  struct stat info {};
  return ::lstat(ranks_dir.c_str(), &info) == 0 ? std::int64_t{info.st_uid} : kNoOtherUser;
}

// Empty: this node has none with this number.
std::string AccountWithId(std::int64_t uid) {
  std::vector<char> buffer(1 << 16);
  passwd entry{};
  passwd* found = nullptr;
  const bool is_known = uid >= 0 && ::getpwuid_r(static_cast<uid_t>(uid), &entry, buffer.data(),
                                                 buffer.size(), &found) == 0;
  return is_known && found != nullptr ? found->pw_name : "";
}

// By the job's newest Prepare.
std::string AccountOf(const Agent& agent, const JobId& job) {
  const Prepare* const prepare = agent.FindPrepare(job);
  return prepare != nullptr ? prepare->account : "";
}

// With the last values of its page.
RankExited EnrichExit(const ProgressSampler& sampler, RankExited exited) {
  exited.last = sampler.Last(exited.job, exited.rank);
  return exited;
}

bool EndUnknownJob(OwnerFiles& files, const std::string& job_dir, const std::string& ranks_dir,
                   const std::string& name) {
  const std::int64_t owner = OwnerOf(ranks_dir);
  if (auto guardian = ConnectPackets(ranks_dir, kGuardianSocketName, owner); guardian.ok()) {
    (void)guardian->Send(Encode(GuardianCommand(GuardianRelease{})));
    // It closes the connection when everything is ended.
    const Deadline deadline = Deadline::After(kReleaseBudget);
    while (guardian->Receive(deadline).ok()) {
    }
  }
  const bool has_directory = files.launcher() == nullptr || owner != kNoOtherUser;
  const std::string account = files.launcher() == nullptr ? "" : AccountWithId(owner);
  if (has_directory) {
    const auto proof = files.ProveTerminated(account, ranks_dir, {name}, 0);
    if (!proof || !proof->unkillable.empty()) return false;
    files.RemoveRanksDirectory(account, ranks_dir);
  }
  std::error_code ignored;
  std::filesystem::remove_all(job_dir, ignored);
  return true;
}

}  // namespace

AgentRunner::AgentRunner(EventLoop& loop, AgentRunnerOptions options, SendFunction send)
    : loop_(loop),
      options_(std::move(options)),
      send_(std::move(send)),
      agent_(options_.launch, options_.jobs_dir),
      sampler_(3 * options_.scrape_interval),
      progress_interval_(kDefaultProgressInterval),
      ready_timer_(loop),
      sample_timer_(loop),
      files_(options_.launcher),
      scrubber_(files_, [this](const CheckpointScrubbed& scrubbed) { Answer(scrubbed); }),
      verifier_(
          files_, [this](const CheckpointScrubbed& scrubbed) { Answer(scrubbed); }, scrubber_) {}

void AgentRunner::Answer(const CheckpointScrubbed& scrubbed) {
  loop_.Post([this, scrubbed] { send_(scrubbed); });
}

template <typename Work, typename Then>
void AgentRunner::RunOn(WorkerLanes& lanes, const JobId& job, Work work, Then then,
                        std::invoke_result_t<Work> refusal) {
  const bool taken = lanes.TrySubmit(
      job.value, [this, work, then] { loop_.Post([then, result = work()] { then(result); }); });
  if (!taken) loop_.Post([then, refusal = std::move(refusal)] { then(refusal); });
}

template <typename Refused>
void AgentRunner::DoLater(const Refused& effect) {
  auto& timer = stuck_looks_[effect.job];
  if (!timer) timer = std::make_unique<Timer>(loop_);
  // Not from within the timer, which the effect may destroy.
  timer->Start(kStuckPause, [this, effect] { loop_.Post([this, effect] { Do(effect); }); });
}

std::uint64_t AgentRunner::refused() const {
  return node_lanes_.refused() + preflight_lanes_.refused() + checkpoint_lanes_.refused() +
         log_lanes_.refused();
}

void AgentRunner::Start(std::function<void()> ready) {
  ready_ = std::move(ready);
  for (const std::string& name : ListJobs(options_.jobs_dir)) AdoptJob(name);
  ready_timer_.Start(kAdoptionBudget, [this] {
    if (!ready_) return;
    Log().warn("some guardians did not report their state in time; continuing without them");
    std::exchange(ready_, nullptr)();
  });
  CheckReady();
}

void AgentRunner::AdoptJob(const std::string& name) {
  const std::string job_dir = options_.jobs_dir + "/" + name;
  const std::string ranks_dir = RanksDirectory(options_.launch, job_dir);
  auto record = ReadJobRecord(job_dir, ranks_dir);
  // It began when jobs ran as the worker's user here.
  const bool is_older =
      files_.launcher() != nullptr && record.ok() && record->prepare.account.empty();
  if (is_older) record = FailedPrecondition("it was not started as its owner");
  if (!record.ok()) {
    // Without its records the job cannot be taken over; the coordinator places it again. Not before
    // it has ended: processes that are ended by name and directory could be the ranks of the new
    // attempt.
    Log().warn("job {}: it cannot be taken over, so what is left of it is ended: {}", name,
               record.status().message());
    ++ending_unknown_;
    RunOn(
        node_lanes_, JobId{name},
        [this, job_dir, ranks_dir, name, is_older] {
          OwnerFiles here("");
          return is_older ? EndUnknownJob(here, job_dir, job_dir, name)
                          : EndUnknownJob(files_, job_dir, ranks_dir, name);
        },
        [this](bool) {
          --ending_unknown_;
          CheckReady();
        },
        false);
    return;
  }
  Prepare& prepare = record->prepare;
  if (record->guardian_generation > prepare.generation) {
    // An abort fenced a generation that was never prepared here.
    prepare.generation = record->guardian_generation;
    record->launched = false;
  }
  const JobId job = prepare.job;
  Log().info("job {} g{}: found on this node, its guardian {}", job.value, prepare.generation,
             record->guardian_alive ? "is alive" : "is gone");
  Decide(JobFound{.prepare = prepare,
                  .spec = record->spec,
                  .launched = record->launched,
                  .guardian_alive = record->guardian_alive});
  if (record->guardian_alive) OnLinkClosed(job, Unavailable("the worker was restarted"), 0);
}

void AgentRunner::Connect(const JobId& job, PacketSocket socket, bool greets) {
  GuardianLink::Handlers handlers{
      .on_event = [this, job](const GuardianEvent& event,
                              UniqueFd page) { OnEvent(job, event, std::move(page)); },
      .on_closed =
          [this, job](const Status& why) {
            // Not from within the link that is to be replaced.
            loop_.Post([this, job, why] { OnLinkClosed(job, why, 0); });
          }};
  auto link = std::make_unique<GuardianLink>(loop_, std::move(socket), std::move(handlers));
  links_[job].reset(new Connection{std::move(link), GuardianWatchdog(greets), Timer(loop_)});
  ScheduleGuardianCheck(job);
}

void AgentRunner::ScheduleGuardianCheck(const JobId& job) {
  links_.at(job)->tick.Start(options_.guardian_tick, [this, job] { CheckGuardian(job); });
}

void AgentRunner::CheckGuardian(JobId job) {
  Connection& connection = *links_.at(job);
  switch (connection.watch.OnTick()) {
    case GuardianWatchdog::Act::kNothing: break;
    case GuardianWatchdog::Act::kPing: connection.link->Send(GuardianPing{}); break;
    case GuardianWatchdog::Act::kKill: {
      Log().warn("job {}: the guardian {}; it is ended, and the job goes on from a checkpoint",
                 job.value, connection.watch.reason());
      RunOn(
          node_lanes_, job,
          [this, job, account = AccountOf(agent_, job),
           dir = RanksDirectory(options_.launch, agent_.JobDir(job))] {
            return files_.EndGuardian(account, dir, job);
          },
          [job](const Status& status) {
            if (!status.ok()) Log().warn("job {}: {}", job.value, status.message());
          },
          Unavailable(kBusy));
      break;
    }
    case GuardianWatchdog::Act::kGiveUp:
      // Not from within the timer that is destroyed with it.
      return loop_.Post([this, job] {
        links_.erase(job);
        Decide(GuardianLost{job, "it does not answer, and survived SIGKILL"});
        CheckReady();
      });
  }
  ScheduleGuardianCheck(job);
}

void AgentRunner::OnLinkClosed(const JobId& job, const Status& why, int attempt) {
  links_.erase(job);
  const std::string dir = RanksDirectory(options_.launch, agent_.JobDir(job));
  if (attempt < kReconnectAttempts && IsRecordLocked(dir + "/" + kGuardianRecordName)) {
    const bool may = attempt > 0 || gates_[job].AdmitConnection(SystemClock().Now());
    auto socket = may ? ConnectPackets(dir, kGuardianSocketName, OwnerOf(dir))
                      : ResourceExhausted("it closes its connections");
    if (socket.ok()) {
      segments_.BeginReplay(job);
      Connect(job, *std::move(socket), true);
      return;
    }
    // It is about to end, or about to listen.
    auto& timer = reconnects_[job];
    if (!timer) timer = std::make_unique<Timer>(loop_);
    timer->Start(may ? kReconnectPause : options_.flood_pause,
                 [this, job, why, attempt] { OnLinkClosed(job, why, attempt + 1); });
    return;
  }
  Decide(GuardianLost{job, why.message()});
  CheckReady();
}

bool AgentRunner::Admits(const JobId& job, const GuardianEvent& event, const Prepare& prepare) {
  GuardianGate& gate = gates_[job];
  const bool is_trusted = gate.ignored() == 0;
  switch (gate.Admit(event, prepare, SystemClock().Now())) {
    case GuardianGate::Verdict::kTake: return true;
    case GuardianGate::Verdict::kIgnore:
      if (is_trusted && gate.ignored() > 0)
        Log().warn("job {}: what is in its guardian's place names ranks that it does not have here",
                   job.value);
      return false;
    case GuardianGate::Verdict::kTooMany: break;
  }
  Log().warn("job {}: what is in its guardian's place sends too much; its connection is closed",
             job.value);
  links_.erase(job);
  auto& timer = reconnects_[job];
  if (!timer) timer = std::make_unique<Timer>(loop_);
  timer->Start(options_.flood_pause,
               [this, job] { OnLinkClosed(job, ResourceExhausted("it sent too much"), 0); });
  return false;
}

void AgentRunner::OnEvent(const JobId& job, const GuardianEvent& event, UniqueFd descriptor) {
  const Prepare* prepare = agent_.FindPrepare(job);
  if (prepare == nullptr || !Admits(job, event, *prepare)) return;
  GuardianWatchdog& watch = links_.at(job)->watch;
  watch.OnHeard();
  if (const auto* hello = std::get_if<GuardianHello>(&event))
    watch.OnHello(hello->answers_pings, hello->packets);
  if (watch.refuses()) return;
  if (const auto* started = std::get_if<GuardianRankStarted>(&event); started && descriptor.valid())
    AddPage(*prepare, *started, descriptor);
  if (const auto* exited = std::get_if<GuardianRankExited>(&event)) {
    // The last finished step is reported before the end.
    sampler_.EndRank(job, exited->rank, SystemClock().Now());
    for (Progress& progress : sampler_.Sample(SystemClock().Now(), progress_interval_))
      send_(std::move(progress));
  }
  if (const auto* segment = std::get_if<GuardianSegment>(&event))
    segments_.Apply(job, *segment, std::move(descriptor), prepare->ranks.size());
  if (std::holds_alternative<GuardianSynced>(event)) segments_.EndReplay(job);
  Decide(GuardianReported{job, event});
  CheckReady();
}

void AgentRunner::AddPage(const Prepare& prepare, const GuardianRankStarted& started,
                          const UniqueFd& page) {
  const JobId& job = prepare.job;
  if (files_.launcher() != nullptr && !IsSealed(page.get())) {
    Log().warn("job {}: the progress page of rank {} is not sealed, and not read", job.value,
               started.rank);
    return;
  }
  const Status status =
      sampler_.AddPage(job, prepare.job_name, started.generation, started.rank,
                       static_cast<pid_t>(started.pid), page, SystemClock().Now());
  if (!status.ok()) Log().warn("job {}: {}", job.value, status.message());
  ScheduleSampling();
}

std::vector<HostedGeneration> AgentRunner::Hosted() const {
  std::vector<HostedGeneration> all = agent_.Hosted();
  for (HostedGeneration& hosted : all)
    for (RankExited& exited : hosted.exited) exited = EnrichExit(sampler_, std::move(exited));
  return all;
}

void AgentRunner::CheckReady() {
  if (!ready_ || ending_unknown_ > 0 || !agent_.AllSettled()) return;
  ready_timer_.Cancel();
  std::exchange(ready_, nullptr)();
}

void AgentRunner::ScheduleSampling() {
  if (sampling_ || !sampler_.AnyRunning()) return;
  sampling_ = true;
  sample_timer_.Start(sampler_.NextSampleIn(), [this] {
    sampling_ = false;
    for (Progress& progress : sampler_.Sample(SystemClock().Now(), progress_interval_))
      send_(std::move(progress));
    ScheduleSampling();
  });
}

void AgentRunner::Handle(const CoordinatorMessage& message) {
  std::visit([this](const auto& m) { HandleMessage(m); }, message);
}

void AgentRunner::HandleMessage(const Welcome& welcome) {
  if (welcome.progress_ms > 0) progress_interval_ = std::chrono::milliseconds(welcome.progress_ms);
}

void AgentRunner::HandleMessage(const Prepare& prepare) {
  if (files_.launcher() == nullptr || !prepare.account.empty()) return Decide(prepare);
  send_(Prepared{.job = prepare.job,
                 .generation = prepare.generation,
                 .error = "jobs run as their owners here, and the job's owner has no `account` in "
                          "the cluster's user file"});
}

void AgentRunner::HandleMessage(const CheckpointCommitted& committed) {
  RunOn(
      checkpoint_lanes_, committed.job,
      [this, committed] { return files_.WriteManifest(committed); },
      [this](const ManifestWritten& written) { send_(written); },
      ManifestWritten{.job = committed.job,
                      .generation = committed.generation,
                      .directory = committed.checkpoint.directory,
                      .error = kBusy});
}

void AgentRunner::HandleMessage(const CancelScrub& cancel) {
  scrubber_.Cancel(cancel.scrub_id);
  verifier_.Cancel(cancel.scrub_id);
}

void AgentRunner::HandleMessage(const ScrubCheckpoint& order) {
  if (order.at_once) return verifier_.Start(order, {});
  std::vector<OutputDirectory> yields_to = {{order.account, order.output_dir}};
  for (const HostedGeneration& hosted : agent_.Hosted()) {
    const Prepare* prepare = agent_.FindPrepare(hosted.job);
    if (prepare != nullptr && prepare->output_dir != order.output_dir)
      yields_to.push_back({prepare->account, prepare->output_dir});
  }
  scrubber_.Start(order, std::move(yields_to));
}

void AgentRunner::HandleMessage(const ReadLog& request) {
  RunOn(
      log_lanes_, request.job, [this, request] { return files_.ReadLog(request); },
      [this](const LogChunk& chunk) { send_(chunk); },
      LogChunk{.request_id = request.request_id, .error = kBusy, .busy = true});
}

void AgentRunner::Decide(const Event& event) {
  for (const Effect& effect : agent_.Handle(event))
    std::visit([this](const auto& e) { Do(e); }, effect);
}

void AgentRunner::Do(const SendToCoordinator& effect) {
  if (const auto* exited = std::get_if<RankExited>(&effect.message))
    send_(EnrichExit(sampler_, *exited));
  else
    send_(effect.message);
}

void AgentRunner::Do(const SendToGuardian& effect) {
  const auto link = links_.find(effect.job);
  if (link != links_.end()) link->second->link->Send(effect.command);
}

void AgentRunner::Do(const StartGuardian& effect) {
  const JobId job = effect.job;
  auto pair = PacketSocket::Pair();
  if (!pair.ok()) {
    loop_.Post([this, job, status = pair.status()] { OnLinkClosed(job, status, 0); });
    return;
  }
  Connect(job, std::move(pair->first), false);
  // Before anything else, so that the first assignment finds them.
  for (const auto& [name, descriptor] : segments_.Of(job))
    links_[job]->link->Send(GuardianHold{name}, descriptor.get());
  if (const auto secrets = secrets_.find(job); secrets != secrets_.end())
    links_[job]->link->Send(GuardianSecrets{}, secrets->second.get());
  auto guardian_end = std::make_shared<PacketSocket>(std::move(pair->second));
  RunOn(
      node_lanes_, job,
      [this, account = AccountOf(agent_, job), dir = agent_.JobDir(job), job, guardian_end] {
        const Status status = StartGuardianOf(options_, files_, account, dir, job, *guardian_end);
        // Only the guardian holds its end from now on, so that its death is seen.
        if (status.ok()) guardian_end->Close();
        return status;
      },
      [this, job](const Status& status) {
        if (status.ok()) return;
        links_.erase(job);
        Decide(GuardianLost{job, "it cannot be started: " + status.message()});
        CheckReady();
      },
      Unavailable(kBusy));
}

void AgentRunner::Do(const StartPreflight& effect) {
  const Prepare prepare = effect.prepare;
  RunOn(
      preflight_lanes_, prepare.job,
      [this, prepare, dir = agent_.JobDir(prepare.job)]() -> PreflightResult {
        if (Status status = MakeDirectories(dir, kPrivateDirectory); !status.ok())
          return {.status = status, .retryable = true};
        return RunPreflight(options_.launch, prepare, dir, [&] {
          return files_.PrepareForOwner(options_.launch, prepare,
                                        RanksDirectory(options_.launch, dir));
        });
      },
      [this, prepare](const PreflightResult& result) {
        Decide(
            PreflightDone{.job = prepare.job, .generation = prepare.generation, .result = result});
      },
      {.status = Unavailable(kBusy), .retryable = true});
}

void AgentRunner::Do(const StageLaunch& effect) {
  const Launch launch = effect.launch;
  using Staged = std::shared_ptr<Result<UniqueFd>>;
  RunOn(
      effect.has_secrets ? secret_lanes_ : node_lanes_, launch.job,
      [this, launch, prepare = effect.prepare, has_secrets = effect.has_secrets,
       dir = agent_.JobDir(launch.job)]() -> Staged {
        const auto stage = [&]() -> Result<UniqueFd> {
          MUSTER_RETURN_IF_ERROR(
              WriteLaunchFiles(files_, launch, prepare, dir, RanksDirectory(options_.launch, dir)));
          if (!has_secrets) return UniqueFd();
          auto secrets = options_.fetch_secrets(launch.job, launch.generation);
          if (!secrets.ok()) return secrets.status().WithContext("the job's secrets");
          return MakeSecretFile(*secrets);
        };
        return std::make_shared<Result<UniqueFd>>(stage());
      },
      // The guardian has them before the ranks' launch, which follows on the same connection; one
      // that does not live yet gets them at its start.
      [this, launch](const Staged& staged) {
        if (staged->ok() && (*staged)->valid()) {
          const UniqueFd& secrets = secrets_[launch.job] = std::move(*staged).value();
          const auto link = links_.find(launch.job);
          if (link != links_.end()) link->second->link->Send(GuardianSecrets{}, secrets.get());
        }
        Decide(LaunchStaged{launch, staged->status()});
      },
      std::make_shared<Result<UniqueFd>>(Unavailable(kBusy)));
  if (launch.generation <= 1) return;
  // In parallel with the ranks' start, which must not wait for it.
  RunOn(
      checkpoint_lanes_, launch.job,
      [this, launch, prepare = effect.prepare] {
        return files_.RemoveAbandonedCheckpoints(prepare.account, prepare.output_dir, launch);
      },
      [job = launch.job](const std::vector<std::string>& removed) {
        for (const std::string& name : removed)
          Log().info("job {}: removed the half-written {}", job.value, name);
      },
      {});
}

void AgentRunner::Do(const StartTerminationProof& effect) {
  const StartTerminationProof wanted = effect;
  RunOn(
      node_lanes_, wanted.job,
      [this, wanted, account = AccountOf(agent_, wanted.job), dir = agent_.JobDir(wanted.job)] {
        std::optional<TerminationProof> proof = files_.ProveTerminated(
            account, RanksDirectory(options_.launch, dir), wanted.job, wanted.generation);
        if (proof && proof->stopped) AddStoppedRanks(dir, wanted.generation, &proof->exited);
        return proof;
      },
      [this, wanted](const std::optional<TerminationProof>& proof) {
        if (!proof) return DoLater(wanted);
        stuck_[wanted.job] = proof->unkillable;
        Decide(ProvedGone{.job = wanted.job,
                          .records = proof->exited,
                          .unkillable_pids = PidsOf(proof->unkillable)});
        CheckReady();
      },
      std::nullopt);
}

void AgentRunner::Do(const ForgetJob& effect) {
  const JobId job = effect.job;
  sampler_.EndJob(job, SystemClock().Now());
  segments_.Forget(job);
  secrets_.erase(job);
  links_.erase(job);
  gates_.erase(job);
  reconnects_.erase(job);
  stuck_looks_.erase(job);
  stuck_.erase(job);
  RunOn(
      node_lanes_, job,
      [this, account = AccountOf(agent_, job), dir = agent_.JobDir(job)] {
        files_.RemoveRanksDirectory(account, RanksDirectory(options_.launch, dir));
        std::error_code ignored;
        std::filesystem::remove_all(dir, ignored);
        return true;
      },
      [this, effect](bool removed) {
        if (!removed) return DoLater(effect);
        Decide(Forgotten{effect.job});
      },
      false);
}

void AgentRunner::Do(const ScheduleStuckCheck& effect) {
  auto& timer = stuck_looks_[effect.job];
  if (!timer) timer = std::make_unique<Timer>(loop_);
  timer->Start(kStuckPause, [this, job = effect.job] { Decide(StuckDue{job}); });
}

void AgentRunner::Do(const CheckStuck& effect) {
  std::vector<ProcessInfo> wanted = stuck_[effect.job];
  std::erase_if(wanted, [&](const ProcessInfo& process) {
    return std::ranges::find(effect.pids, process.pid) == effect.pids.end();
  });
  RunOn(
      node_lanes_, effect.job, [wanted] { return EndedOf(wanted); },
      [this, job = effect.job](const std::vector<std::int64_t>& ended) {
        Decide(StuckSeen{job, ended});
      },
      {});
}

void AgentRunner::Do(const LogNote& effect) { Log().info("{}", effect.text); }

}  // namespace muster::worker
