#include "coordinator/control/testing/control_harness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "common/base/check.h"
#include "common/checkpoint_format/shard_name.h"
#include "common/job_spec/parse.h"
#include "coordinator/queues/queue_file.h"

namespace muster {
std::string TrainYaml(const std::string& name, const std::string& more) {
  return "name: " + name +
         "\n"
         "resources: {nodes: 2, ranks_per_node: 1}\n"
         "workdir: /jobs\n"
         "train:\n"
         "  model: {path: model}\n"
         "  data: {train: train.jsonl}\n"
         "  schedule: {max_steps: 100}\n"
         "  checkpoint: {every: 10, keep: 2}\n"
         "  output: {dir: out-" +
         name + "}\n" + more;
}

std::string CommandYaml(const std::string& name, const std::string& more) {
  return "name: " + name +
         "\n"
         "resources: {nodes: 2, ranks_per_node: 1}\n"
         "workdir: /jobs\n"
         "command: [./hello]\n" +
         more;
}

ControlHarness::ControlHarness(ControllerOptions options) : options_(std::move(options)) {
  if (!options_.new_token)
    options_.new_token = [count = 0]() mutable { return "token-" + std::to_string(++count); };
  controller_ = std::make_unique<Controller>(options_);
  now_.mono = TimePoint(std::chrono::hours(1));
  now_.unix_ms = 1'700'000'000'000;
  Apply(controller_->Restore({}, now_));
}

void ControlHarness::Advance(Duration d) {
  const TimePoint end = now_.mono + d;
  while (now_.mono < end) {
    AdvanceTo(std::min<TimePoint>(end, now_.mono + std::chrono::milliseconds(500)));
    const std::map<std::string, SessionId> sessions = sessions_;
    for (const auto& [node, session] : sessions) {
      if (!silent.contains(node)) DeliverOn(session, Heartbeat{});
    }
  }
}

void ControlHarness::Oversleep(Duration d) {
  now_.unix_ms += std::chrono::round<std::chrono::milliseconds>(d).count();
  now_.mono += d;
  Handle(Tick{});
}

void ControlHarness::SetWallClock(Duration by) {
  now_.unix_ms += std::chrono::round<std::chrono::milliseconds>(by).count();
}

void ControlHarness::AdvanceTo(TimePoint end) {
  for (int guard = 0; guard < 1000; ++guard) {
    const std::optional<TimePoint> due = controller_->NextDeadline();
    if (!due || *due > end) break;
    const TimePoint next = std::max(*due, now_.mono);
    now_.unix_ms += std::chrono::round<std::chrono::milliseconds>(next - now_.mono).count();
    now_.mono = next;
    Handle(Tick{});
    const std::optional<TimePoint> after = controller_->NextDeadline();
    ASSERT_TRUE(!after || *after > now_.mono) << "a deadline stays due for ever\n" << Timeline();
  }
  now_.unix_ms += std::chrono::round<std::chrono::milliseconds>(end - now_.mono).count();
  now_.mono = end;
}

// --- clients ---

Reply ControlHarness::SubmitRaw(const std::string& yaml, const std::string& key) {
  std::array<char, 11> id;
  std::snprintf(id.data(), id.size(), "%010x", static_cast<unsigned>(next_id_++) * 0x1111111U);
  Handle(SubmitRequested{.request = next_request_++,
                         .actor = submitter,
                         .spec_yaml = yaml,
                         .key = key,
                         .new_id = JobId{id.data()},
                         .spec = ParseJobSpec(yaml)});
  EXPECT_FALSE(replies_.empty());
  return replies_.back();
}

JobId ControlHarness::Submit(const std::string& yaml, const std::string& key) {
  const Reply reply = SubmitRaw(yaml, key);
  EXPECT_TRUE(reply.status.ok()) << reply.status.ToString();
  return reply.status.ok() ? std::get<SubmitAccepted>(reply.body).id : JobId{};
}

Reply ControlHarness::Cancel(const JobId& id) {
  Handle(CancelRequested{.request = next_request_++, .job = id.value, .reason = ""});
  return replies_.back();
}

Reply ControlHarness::Suspend(const JobId& id, double by_seconds) {
  Handle(SuspendRequested{.request = next_request_++,
                          .job = id.value,
                          .by_seconds = by_seconds,
                          .reason = "maintenance"});
  return replies_.back();
}

Reply ControlHarness::Resume(const JobId& id) {
  Handle(ResumeRequested{.request = next_request_++, .job = id.value});
  return replies_.back();
}

Reply ControlHarness::Update(UpdateRequested request) {
  request.request = next_request_++;
  Handle(request);
  return replies_.back();
}

Reply ControlHarness::Hold(const JobId& id, const std::string& reason) {
  Handle(HoldRequested{.request = next_request_++, .job = id.value, .reason = reason});
  return replies_.back();
}

Reply ControlHarness::ReleaseHeld(const JobId& id) {
  Handle(ReleaseRequested{.request = next_request_++, .job = id.value});
  return replies_.back();
}

Reply ControlHarness::Drain(const std::string& node, double by_seconds) {
  Handle(DrainRequested{.request = next_request_++,
                        .node = NodeName{node},
                        .by_seconds = by_seconds,
                        .reason = "repair"});
  return replies_.back();
}

Reply ControlHarness::Undrain(const std::string& node) {
  Handle(UndrainRequested{.request = next_request_++, .node = NodeName{node}});
  return replies_.back();
}

Reply ControlHarness::ApplyQueues(const std::string& yaml, std::uint64_t expected_version,
                                  bool check_only) {
  return Ask({.yaml = yaml,
              .expected_version = expected_version,
              .check_only = check_only,
              .tree = ParseQueueFile(yaml, "queues.yaml")});
}

Reply ControlHarness::Ask(QueuesApplyRequested request) {
  request.request = next_request_++;
  Handle(request);
  return replies_.back();
}

Reply ControlHarness::ApplyUsers(const std::string& yaml) {
  Handle(UsersApplyRequested{.request = next_request_++,
                             .yaml = yaml,
                             .expected_version = controller_->Users().users->version,
                             .users = ParseUserFile(yaml, "users.yaml")});
  return replies_.back();
}

Reply ControlHarness::Inject(InjectFaultRequested request) {
  request.request = next_request_++;
  Handle(request);
  return replies_.empty() ? Reply{} : replies_.back();
}

// --- workers ---

SessionId ControlHarness::Join(const std::string& node, NodeOptions options) {
  Hello hello;
  hello.protocol_version = options.protocol_version;
  hello.min_protocol_version =
      options.min_protocol_version > 0 ? options.min_protocol_version : options.protocol_version;
  hello.version = "test";
  hello.node = NodeName{node};
  hello.address = options.address;
  hello.host_id = options.host_id;
  hello.failure_domain = options.failure_domain;
  hello.pilot = options.pilot;
  hello.inventory = options.inventory;
  for (int gpu = 0; gpu < options.gpus; ++gpu)
    hello.inventory.devices.push_back({.id = node + "-gpu" + std::to_string(gpu)});
  hello.slots = options.slots;
  hello.instance = options.instance;
  hello.directory_id = options.directory_id;
  hello.container_id = options.container_id;
  hello.epoch_met = options.epoch_met;
  hello.metrics_port = options.metrics_port;
  hello.allows_faults = options.allows_faults;
  hello.hosted = std::move(options.hosted);
  const SessionId session = next_session_++;
  Handle(WorkerHello{session, hello});
  const bool refused = std::any_of(closes.begin(), closes.end(), [&](const CloseSession& close) {
    return close.session == session;
  });
  if (!refused) sessions_[node] = session;
  return session;
}

void ControlHarness::Leave(const std::string& node) {
  Handle(WorkerStreamClosed{sessions_.at(node)});
  sessions_.erase(node);
}

void ControlHarness::Deliver(const std::string& node, WorkerMessage message) {
  DeliverOn(sessions_.at(node), std::move(message));
}

void ControlHarness::DeliverOn(SessionId session, WorkerMessage message) {
  Handle(WorkerMessageReceived{session, std::move(message)});
}

void ControlHarness::PreparedOn(const std::string& node, const JobId& id) {
  const bool master = Attempt(id).nodes.front().value == node;
  Deliver(node, Prepared{.job = id,
                         .generation = Attempt(id).generation,
                         .retryable = true,
                         .master_port = master ? 4001 : 0});
}

void ControlHarness::Started(const JobId& id, int rank) {
  const AttemptRecord& attempt = Attempt(id);
  Deliver(attempt.ranks[rank].node.value, RankStarted{.job = id,
                                                      .generation = attempt.generation,
                                                      .rank = rank,
                                                      .pid = 1000 * attempt.generation + rank});
}

void ControlHarness::Exited(const JobId& id, int rank, ProcessExit exit, double age_seconds) {
  const AttemptRecord& attempt = Attempt(id);
  Deliver(attempt.ranks[rank].node.value,
          RankExited{.job = id,
                     .generation = attempt.generation,
                     .rank = rank,
                     .end = {.exit = exit},
                     .age_seconds = age_seconds,
                     .log_tail = {"last words of rank " + std::to_string(rank)}});
}

void ControlHarness::Ended(const JobId& id, int rank) {
  const AttemptRecord& attempt = Attempt(id);
  Deliver(attempt.ranks[rank].node.value, RankExited{.job = id,
                                                     .generation = attempt.generation,
                                                     .rank = rank,
                                                     .end = {.exit = {0, 9}, .ended = true}});
}

void ControlHarness::QuiescedOn(const std::string& node, const JobId& id) {
  Deliver(node, Quiesced{.job = id, .generation = Attempt(id).generation});
}

void ControlHarness::QuiesceAll(const JobId& id) {
  const Generation generation = Attempt(id).generation;
  const std::vector<NodeName> nodes = Attempt(id).nodes;
  for (const NodeName& node : nodes) {
    if (sessions_.contains(node.value))
      Deliver(node.value, Quiesced{.job = id, .generation = generation});
  }
}

void ControlHarness::ParkedOn(const std::string& node, const JobId& id) {
  const AttemptRecord& attempt = Attempt(id);
  Quiesced quiesced{.job = id, .generation = attempt.generation};
  for (const RankRecord& rank : attempt.ranks) {
    const bool lives = rank.state == RankState::kStopping && rank.pid != 0;
    if (rank.node.value == node && lives) quiesced.parked_ranks.push_back(rank.rank);
  }
  Deliver(node, quiesced);
}

void ControlHarness::ParkAll(const JobId& id) {
  const Generation generation = Attempt(id).generation;
  const std::vector<NodeName> nodes = Attempt(id).nodes;
  for (const NodeName& node : nodes) {
    if (!sessions_.contains(node.value) || Attempt(id).generation != generation) continue;
    ParkedOn(node.value, id);
  }
}

void ControlHarness::Report(const JobId& id, int rank, decltype(TrainerReport::body) body) {
  const AttemptRecord& attempt = Attempt(id);
  Deliver(attempt.ranks[rank].node.value,
          TrainerReport{
              .job = id, .generation = attempt.generation, .rank = rank, .body = std::move(body)});
}

void ControlHarness::ReportAll(const JobId& id, decltype(TrainerReport::body) body) {
  for (int rank = 0; rank < static_cast<int>(Attempt(id).ranks.size()); ++rank)
    Report(id, rank, body);
}

void ControlHarness::StepTo(const JobId& id, Step step, double loss) {
  const AttemptRecord& attempt = Attempt(id);
  RankProgress progress;
  progress.step = step;
  progress.loss = loss;
  progress.step_seconds = 0.1;
  progress.tokens_per_second = 1000;
  progress.max_steps = 100;
  Deliver(attempt.ranks[0].node.value,
          Progress{.job = id, .generation = attempt.generation, .ranks = {progress}});
}

std::string ControlHarness::Directory(const JobId& id, Step step) const {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "step-%08d-g%d", static_cast<int>(step),
                static_cast<int>(Attempt(id).generation));
  return name.data();
}

void ControlHarness::Shard(const JobId& id, int rank, Step step, std::optional<double> eval_loss) {
  Report(id, rank,
         ShardWritten{.step = step,
                      .directory = Directory(id, step),
                      .shard = {rank, ShardFileName(rank), 1000, "xxh3:0"},
                      .eval_loss = eval_loss});
}

void ControlHarness::Checkpoint(const JobId& id, Step step, std::optional<double> eval_loss) {
  for (int rank = 0; rank < static_cast<int>(Attempt(id).ranks.size()); ++rank)
    Shard(id, rank, step, eval_loss);
}

void ControlHarness::CommitRecord(const JobId& id, const std::string& directory, bool ok) {
  Deliver(Attempt(id).nodes.front().value,
          ManifestWritten{.job = id,
                          .generation = Attempt(id).generation,
                          .directory = directory,
                          .error = ok ? "" : "disk full",
                          .pruned = ok ? to_prune_[directory] : std::vector<std::string>()});
}

std::map<std::string, ScrubCheckpoint> ControlHarness::TakeParts(const JobId& id) {
  std::map<std::string, ScrubCheckpoint> parts;
  std::erase_if(sends_, [&](const WorkerSend& send) {
    const auto* scrub = std::get_if<ScrubCheckpoint>(&send.message);
    if (scrub == nullptr || !scrub->at_once || scrub->job != id) return false;
    parts[send.node.value] = *scrub;
    return true;
  });
  return parts;
}

void ControlHarness::AnswerPart(const std::string& node, const ScrubCheckpoint& part,
                                ScrubOutcome outcome, const std::string& detail) {
  Deliver(node, CheckpointScrubbed{.scrub_id = part.scrub_id,
                                   .job = part.job,
                                   .directory = part.checkpoint.directory,
                                   .outcome = outcome,
                                   .file = "",
                                   .detail = detail});
}

void ControlHarness::ReadParts(const JobId& id) {
  for (const auto& [node, part] : TakeParts(id)) AnswerPart(node, part, ScrubOutcome::kWhole);
}

void ControlHarness::Manifest(const JobId& id, const std::string& directory, bool ok) {
  CommitRecord(id, directory, ok);
  if (!ok) return;
  ReadParts(id);
  const auto prunes = [](const WorkerSend& send) {
    return std::holds_alternative<CheckpointCommitted>(send.message);
  };
  if (std::any_of(last_.sends.begin(), last_.sends.end(), prunes)) CommitRecord(id, directory);
}

void ControlHarness::PrepareAll(const JobId& id) {
  const std::vector<NodeName> nodes = Attempt(id).nodes;
  for (const NodeName& node : nodes) PreparedOn(node.value, id);
}

void ControlHarness::StartAll(const JobId& id) {
  PrepareAll(id);
  for (int rank = 0; rank < static_cast<int>(Attempt(id).ranks.size()); ++rank) Started(id, rank);
}

void ControlHarness::TrainFrom(const JobId& id, Step step) {
  ReportAll(id, Formed{});
  ReportAll(id, Resumed{.step = step});
  ReportAll(id, FirstStep{step + 1});
}

void ControlHarness::RunTo(const JobId& id, Step step) {
  StartAll(id);
  TrainFrom(id, 0);
  StepTo(id, step);
}

void ControlHarness::FinishAll(const JobId& id) {
  for (int rank = 0; rank < static_cast<int>(Attempt(id).ranks.size()); ++rank)
    Exited(id, rank, {0, 0});
  QuiesceAll(id);
}

HostedGeneration ControlHarness::Hosted(const std::string& node, const JobId& id,
                                        AttemptState as) const {
  const AttemptRecord& attempt = Attempt(id);
  HostedGeneration hosted;
  hosted.job = id;
  hosted.generation = attempt.generation;
  hosted.prepared = as >= AttemptState::kLaunching;
  hosted.launched = as >= AttemptState::kRunning;
  hosted.master_port = attempt.nodes.front().value == node ? 4001 : 0;
  for (const RankRecord& rank : attempt.ranks) {
    if (!hosted.launched || rank.node.value != node) continue;
    hosted.started.push_back(
        {id, attempt.generation, rank.rank, 1000 * attempt.generation + rank.rank});
  }
  for (std::size_t n = 0; n < attempt.node_devices.size(); ++n)
    if (attempt.nodes[n].value == node) hosted.devices = attempt.node_devices[n];
  return hosted;
}

// --- the coordinator ---

void ControlHarness::Store(StoreOperation operation) {
  store_.Commit({std::move(operation)}, [](const Status& stored) { EXPECT_TRUE(stored.ok()); });
  stored_ = store_.Load().value();
}

void ControlHarness::Restart() {
  sessions_.clear();
  sends_.clear();
  controller_ = std::make_unique<Controller>(options_);
  Apply(controller_->Restore(store_.Load().value(), now_));
}

void ControlHarness::RestartFrom(MemoryStore store) {
  store_ = std::move(store);
  // What was decided since is forgotten.
  generations_.clear();
  final_.clear();
  for (auto& [job, booked] : booked_) booked.shown = {};
  Restart();
}

void ControlHarness::Handle(const Event& event) {
  Apply(controller_->Handle(event, now_));
  EXPECT_TRUE(controller_->CheckInvariants().ok()) << controller_->CheckInvariants().ToString();
}

void ControlHarness::Apply(const Effects& effects) {
  store_.Commit(effects.store, [](const Status& stored) { EXPECT_TRUE(stored.ok()); });
  stored_ = store_.Load().value();
  sends_.insert(sends_.end(), effects.sends.begin(), effects.sends.end());
  for (const WorkerSend& send : effects.sends) {
    const auto* committed = std::get_if<CheckpointCommitted>(&send.message);
    if (committed != nullptr) to_prune_[committed->checkpoint.directory] = committed->prune;
  }
  replies_.insert(replies_.end(), effects.replies.begin(), effects.replies.end());
  closes.insert(closes.end(), effects.closes.begin(), effects.closes.end());
  higher_epoch = std::max(higher_epoch, effects.higher_epoch);
  observations.insert(observations.end(), effects.observations.begin(), effects.observations.end());
  last_ = effects;
  CheckInvariants();
  for (const JobId& id : effects.recalls) {
    recalls.push_back(id);
    if (answers_recalls) AnswerRecall(id);
  }
}

void ControlHarness::AnswerRecall(const JobId& id) {
  Result<ArchivedRecords> records = NotFound("job " + id.value + " was deleted");
  store_.ReadArchive({.job = id}, [&](Result<std::vector<ArchivedRecords>> found) {
    if (found.ok() && !found->empty()) records = std::move(found->front());
  });
  Handle(ArchivedJobRead{id, std::move(records)});
}

void ControlHarness::CheckInvariants() {
  for (const JobView& job : controller_->Jobs()) {
    const JobId& id = job.record->id;
    ASSERT_GE(job.record->generation, generations_[id]) << Timeline();
    generations_[id] = job.record->generation;
    const auto ended = final_.find(id);
    if (ended != final_.end()) {
      ASSERT_EQ(job.record->state, ended->second) << Timeline();
    }
    if (IsTerminal(job.record->state)) final_[id] = job.record->state;
    int live = 0;
    for (const AttemptRecord& attempt : *job.attempts) {
      live += attempt.state != AttemptState::kEnded ? 1 : 0;
    }
    ASSERT_LE(live, 1) << Timeline();
    const bool at_rest = IsTerminal(job.record->state) || job.record->state == JobState::kSuspended;
    ASSERT_FALSE(live == 1 && at_rest) << Timeline();
  }
  std::map<NodeName, int> used;
  for (const JobView& job : controller_->Jobs()) {
    if (job.attempts->empty() || job.attempts->back().state == AttemptState::kEnded ||
        job.attempts->back().state == AttemptState::kAborting) {
      continue;
    }
    for (const RankRecord& rank : job.ranks()) {
      if (rank.state != RankState::kExited) ++used[rank.node];
    }
  }
  for (const NodeView& node : controller_->Nodes()) {
    ASSERT_LE(used[node.record->name], node.record->slots) << Timeline();
  }
  CheckUsage();
  std::uint64_t seq = 0;
  for (const EventRecord& event : controller_->Events()) {
    ASSERT_GT(event.seq, seq);
    seq = event.seq;
  }
}

void ControlHarness::CheckUsage() {
  // A restart continues by the wall clock, which counts milliseconds.
  constexpr double kNear = 0.01;
  for (const JobView& job : controller_->Jobs()) {
    Booked& booked = booked_[job.record->id];
    booked.rank_seconds += ToSeconds(now_.mono - booked.at) * booked.ranks;
    booked.at = now_.mono;
    booked.ranks = job.ledger->doing().ranks;
    const Goodput known = job.goodput(now_.mono);
    ASSERT_NEAR(known.total_seconds() + known.under_way_seconds(), booked.rank_seconds,
                kNear * std::max(1, booked.ranks))
        << Timeline();
    const RankMicros shown = job.stored_goodput(now_.mono).micros;
    for (std::size_t i = 0; i < shown.size(); ++i) {
      ASSERT_GE(shown[i] + 1000 * booked.ranks, booked.shown[i])
          << "a counter falls: " << Name(static_cast<TimeState>(i)) << "\n"
          << Timeline();
    }
    booked.shown = shown;
  }
}

// --- what came out ---

bool ControlHarness::LastWroteNothing() const {
  return std::ranges::all_of(last_.store, [](const StoreOperation& operation) {
    return std::holds_alternative<AppendAudit>(operation);
  });
}

JobView ControlHarness::Job(const JobId& id) const {
  return controller_->FindJob(id.value).value();
}

const AttemptRecord& ControlHarness::Attempt(const JobId& id) const {
  const std::vector<AttemptRecord>& attempts = *Job(id).attempts;
  MUSTER_CHECK(!attempts.empty(), "no attempt yet\n" + Timeline());
  return attempts.back();
}

NodeView ControlHarness::Node(const std::string& name) const {
  for (const NodeView& node : controller_->Nodes()) {
    if (node.record->name.value == name) return node;
  }
  ADD_FAILURE() << "no node " << name;
  return {};
}

int ControlHarness::CountEvents(const JobId& id, const std::string& kind) const {
  int count = 0;
  for (const EventRecord& event : controller_->Events()) {
    count += event.job == id && event.kind == kind ? 1 : 0;
  }
  return count;
}

bool ControlHarness::HasEvent(const JobId& id, const std::string& kind,
                              const std::string& part) const {
  for (const EventRecord& event : controller_->Events()) {
    if (event.job == id && event.kind == kind && event.message.find(part) != std::string::npos) {
      return true;
    }
  }
  return false;
}

std::string ControlHarness::Timeline() const {
  std::string timeline;
  for (const EventRecord& event : controller_->Events()) {
    timeline += std::to_string(event.seq) + " " + event.job.value + " g" +
                std::to_string(event.generation) + " " + event.kind + ": " + event.message + "\n";
  }
  return timeline;
}

RunningJob::RunningJob(const std::string& yaml, ControllerOptions options,
                       const std::vector<std::string>& nodes)
    : ControlHarness(std::move(options)) {
  for (const std::string& node : nodes) Join(node);
  id = Submit(yaml);
  StartAll(id);
  if (Job(id).record->max_steps > 0) {
    TrainFrom(id, 0);
    StepTo(id, 12);
  }
  Forget();
}

void RunningJob::ArchiveIt() {
  FinishAll(id);
  for (const NodeName& node : Attempt(id).nodes) Deliver(node.value, Released{id});
  Oversleep(ControllerOptions().retain);
  Advance(std::chrono::seconds(1));
}

}  // namespace muster
