#include "tests/support/fake_worker.h"

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "common/base/check.h"
#include "common/checkpoint_format/shard_name.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/tls.h"
#include "common/rpc/token.h"

namespace muster::testing {

namespace v1 = muster::v1;

// One call. Destroyed only when gRPC and the alarm are done with it; see Disconnect.
struct FakeWorker::Stream final : grpc::ClientBidiReactor<v1::WorkerMessage, Coordinator> {
  explicit Stream(FakeWorker& worker_in) : worker(worker_in) {}

  void Open() {
    stub = v1::Worker::NewStub(channel);
    stub->async()->Session(&context, this);
    // Messages are sent from the test's thread; the hold is given up when the reading has ended.
    AddHold();
    StartRead(&incoming);
    StartCall();
  }

  void SendLocked(const v1::WorkerMessage& message) {
    if (broken) return;
    outgoing.push_back(message);
    spoke = true;
    if (outgoing.size() == 1) StartWrite(&outgoing.front());
  }

  void OnReadDone(bool ok) override {
    std::lock_guard lock(worker.mutex_);
    if (ok) {
      worker.OnMessageLocked(*this, incoming);
      StartRead(&incoming);
    } else {
      broken = true;
      RemoveHold();
    }
  }

  void OnWriteDone(bool ok) override {
    std::lock_guard lock(worker.mutex_);
    if (!ok) broken = true;
    outgoing.pop_front();
    if (!broken && !outgoing.empty()) StartWrite(&outgoing.front());
  }

  void OnDone(const grpc::Status& how) override {
    std::lock_guard lock(worker.mutex_);
    status = FromGrpcStatus(how);
    ended = true;
    if (alarm) alarm->Cancel();
    worker.changed_.notify_all();
  }

  void BeatLocked() {
    beating = true;
    alarm = std::make_unique<grpc::Alarm>();
    alarm->Set(std::chrono::system_clock::now() + heartbeat, [this](bool ok) {
      std::lock_guard lock(worker.mutex_);
      beating = false;
      if (ok && !broken && !ended) {
        v1::WorkerMessage message;
        message.mutable_heartbeat();
        if (!spoke) SendLocked(message);  // any other message shows as well that the node is alive
        spoke = false;
        BeatLocked();
      }
      worker.changed_.notify_all();
    });
  }

  FakeWorker& worker;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::Worker::Stub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::Alarm> alarm;  // one for each beat: none is set anew while it rings
  Coordinator incoming;
  std::deque<v1::WorkerMessage> outgoing;  // the first is being written
  std::chrono::milliseconds heartbeat{1000};
  bool welcomed = false;
  bool spoke = false;    // since the last heartbeat was due
  bool broken = false;   // nothing can be sent any more
  bool ended = false;    // gRPC is done
  bool beating = false;  // the alarm is set
  Status status;
};

FakeWorker::FakeWorker(std::string coordinator, std::string token, FakeWorkerOptions options)
    : coordinator_(std::move(coordinator)),
      token_(std::move(token)),
      options_(std::move(options)) {}

FakeWorker::~FakeWorker() { Disconnect(); }

void FakeWorker::set_options(FakeWorkerOptions options) {
  std::lock_guard lock(mutex_);
  options_ = std::move(options);
}

Status FakeWorker::Connect() {
  StartConnecting();
  return WaitForWelcome();
}

void FakeWorker::StartConnecting() {
  Disconnect();
  auto stream = std::make_unique<Stream>(*this);
  std::lock_guard lock(mutex_);
  if (options_.credentials.empty()) {
    stream->channel = OpenChannel(coordinator_);
    AttachToken(stream->context, token_);
  } else {
    auto channel = OpenTlsChannel(coordinator_, options_.credentials);
    MUSTER_CHECK(channel.ok(), channel.status().message());
    stream->channel = *std::move(channel);
  }
  stream_ = std::move(stream);
  stream_->Open();
  SendLocked(HelloLocked());
}

Status FakeWorker::WaitForWelcome() {
  std::unique_lock lock(mutex_);
  if (!stream_) return FailedPrecondition("not connected");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  changed_.wait_until(lock, deadline, [&] { return stream_->welcomed || stream_->ended; });
  if (stream_->welcomed) return OkStatus();
  return stream_->ended ? stream_->status : DeadlineExceeded("no Welcome within 10 s");
}

void FakeWorker::Disconnect() {
  std::unique_lock lock(mutex_);
  if (!stream_) return;
  stream_->broken = true;
  stream_->context.TryCancel();
  changed_.wait(lock, [&] { return stream_->ended && !stream_->beating; });
  stream_.reset();
}

Status FakeWorker::WaitForEnd() {
  std::unique_lock lock(mutex_);
  if (!stream_) return FailedPrecondition("not connected");
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  if (!changed_.wait_until(lock, deadline, [&] { return stream_->ended; })) {
    return DeadlineExceeded("the stream did not end within 10 s");
  }
  return stream_->status;
}

v1::WorkerMessage FakeWorker::HelloLocked() const {
  v1::WorkerMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_version(options_.protocol_version);
  hello.set_version("fake");
  hello.set_node(options_.node);
  hello.set_address(options_.address);
  hello.set_host_id(options_.host_id);
  hello.set_slots(options_.slots);
  hello.set_pid(4242);
  hello.set_metrics_port(9);
  hello.set_instance(options_.instance);
  hello.set_allows_faults(options_.allow_faults);
  for (const auto& [job, hosted] : hosted_) *hello.add_hosted() = hosted.state;
  return message;
}

void FakeWorker::OnMessageLocked(Stream& stream, const Coordinator& message) {
  if (message.has_welcome()) {
    stream.welcomed = true;
    stream.heartbeat = std::chrono::milliseconds(message.welcome().heartbeat_ms());
    stream.BeatLocked();
  }
  options_.observer ? options_.observer(message) : received_.push_back(message);
  HandleLocked(message);
  changed_.notify_all();
}

void FakeWorker::HandleLocked(const Coordinator& message) {
  switch (message.body_case()) {
    case Coordinator::kPrepare: return OnPrepareLocked(message.prepare());
    case Coordinator::kLaunch: return OnLaunchLocked(message.launch());
    case Coordinator::kAbort: return OnAbortLocked(message.abort());
    case Coordinator::kReadLog: return OnReadLogLocked(message.read_log());
    case Coordinator::kRelease: {
      hosted_.erase(message.release().job_id());
      v1::WorkerMessage reply;
      reply.mutable_released()->set_job_id(message.release().job_id());
      return SendLocked(reply);
    }
    case Coordinator::kCheckpointCommitted: {
      v1::WorkerMessage reply;
      reply.mutable_manifest_written()->set_job_id(message.checkpoint_committed().job_id());
      reply.mutable_manifest_written()->set_directory(
          message.checkpoint_committed().checkpoint().directory());
      reply.mutable_manifest_written()->set_generation(message.checkpoint_committed().generation());
      *reply.mutable_manifest_written()->mutable_pruned() = message.checkpoint_committed().prune();
      return SendLocked(reply);
    }
    case Coordinator::kScrubCheckpoint: {
      if (options_.scrub_outcome == v1::SCRUB_OUTCOME_UNSPECIFIED) return;
      const v1::ScrubCheckpoint& scrub = message.scrub_checkpoint();
      v1::WorkerMessage reply;
      v1::CheckpointScrubbed& scrubbed = *reply.mutable_checkpoint_scrubbed();
      scrubbed.set_scrub_id(scrub.scrub_id());
      scrubbed.set_job_id(scrub.job_id());
      scrubbed.set_directory(scrub.checkpoint().directory());
      scrubbed.set_outcome(options_.scrub_outcome);
      scrubbed.set_detail(options_.scrub_detail);
      return SendLocked(reply);
    }
    default: return;
  }
}

void FakeWorker::OnPrepareLocked(const v1::Prepare& prepare) {
  v1::WorkerMessage reply;
  v1::Prepared& prepared = *reply.mutable_prepared();
  prepared.set_job_id(prepare.job_id());
  prepared.set_generation(prepare.generation());
  prepared.set_error(options_.prepare_error);
  prepared.set_retryable(options_.prepare_retryable);
  if (prepared.error().empty()) {
    Hosted hosted;
    hosted.state.set_job_id(prepare.job_id());
    hosted.state.set_generation(prepare.generation());
    hosted.state.set_prepared(true);
    if (prepare.hosts_master()) hosted.state.set_master_port(29500);
    for (const v1::RankPlacement& rank : prepare.ranks()) hosted.ranks.push_back(rank.rank());
    prepared.set_master_port(hosted.state.master_port());
    hosted_[prepare.job_id()] = std::move(hosted);
  }
  SendLocked(reply);
}

void FakeWorker::OnLaunchLocked(const v1::Launch& launch) {
  const auto found = hosted_.find(launch.job_id());
  if (found == hosted_.end() || found->second.state.generation() != launch.generation()) return;
  Hosted& hosted = found->second;
  if (hosted.state.launched()) return;
  hosted.state.set_launched(true);
  const bool ends = options_.ends_on_launch && options_.ends_on_launch(launch.job_id());
  const std::int64_t resumed = launch.resume().empty() ? 0 : launch.resume(0).step();
  for (const int rank : hosted.ranks) {
    v1::RankStarted started;
    started.set_job_id(launch.job_id());
    started.set_generation(launch.generation());
    started.set_rank(rank);
    started.set_pid(1000 + rank);
    *hosted.state.add_started() = started;
    v1::WorkerMessage message;
    *message.mutable_rank_started() = started;
    SendLocked(message);
    if (ends) ExitRankLocked(hosted, rank, {});
    if (options_.train_on_launch) TrainLocked(hosted, rank, resumed);
  }
  if (ends) QuiesceLocked(hosted);
}

void FakeWorker::TrainLocked(Hosted& hosted, int rank, std::int64_t step) {
  v1::TrainerReport report;
  report.set_rank(rank);
  report.mutable_formed();
  ReportLocked(hosted, report);
  report.mutable_resumed()->set_step(step);
  ReportLocked(hosted, report);
  report.mutable_first_step()->set_step(step + 1);
  ReportLocked(hosted, report);
}

void FakeWorker::ReportLocked(Hosted& hosted, v1::TrainerReport report) {
  report.set_job_id(hosted.state.job_id());
  report.set_generation(hosted.state.generation());
  *hosted.state.add_reports() = report;
  v1::WorkerMessage message;
  *message.mutable_trainer_report() = std::move(report);
  SendLocked(message);
}

void FakeWorker::OnAbortLocked(const v1::Abort& abort) {
  const auto found = hosted_.find(abort.job_id());
  if (found == hosted_.end()) {
    v1::WorkerMessage reply;
    reply.mutable_quiesced()->set_job_id(abort.job_id());
    reply.mutable_quiesced()->set_generation(abort.generation());
    return SendLocked(reply);
  }
  Hosted& hosted = found->second;
  if (hosted.state.launched()) {
    for (const int rank : hosted.ranks) {
      ExitRankLocked(hosted, rank, {.signal = 9, .ended = true});
    }
  }
  QuiesceLocked(hosted);
}

void FakeWorker::OnReadLogLocked(const v1::ReadLog& request) {
  const std::string& text = options_.log_text;
  const auto size = static_cast<std::int64_t>(text.size());
  const std::int64_t from = request.offset() < 0
                                ? std::max<std::int64_t>(0, size + request.offset())
                                : std::min<std::int64_t>(request.offset(), size);
  v1::WorkerMessage reply;
  v1::LogChunk& chunk = *reply.mutable_log_chunk();
  chunk.set_request_id(request.request_id());
  chunk.set_data(text.substr(static_cast<std::size_t>(from)));
  chunk.set_next_offset(size);
  chunk.set_at_end(true);
  chunk.set_path(request.output_dir() + "/logs/" + std::to_string(request.generation()) + "/rank-" +
                 std::to_string(request.rank()) + ".log");
  SendLocked(reply);
}

void FakeWorker::ExitRankLocked(Hosted& hosted, int rank, Exit how) {
  const auto& exited = hosted.state.exited();
  if (std::any_of(exited.begin(), exited.end(),
                  [&](const v1::RankExited& e) { return e.rank() == rank; })) {
    return;
  }
  v1::RankExited exit;
  exit.set_job_id(hosted.state.job_id());
  exit.set_generation(hosted.state.generation());
  exit.set_rank(rank);
  exit.mutable_exit()->set_exit_code(how.exit_code);
  exit.mutable_exit()->set_signal(how.signal);
  exit.set_ended(how.ended);
  exit.set_age_seconds(0.001);
  exit.add_log_tail("last words of rank " + std::to_string(rank));
  *hosted.state.add_exited() = exit;
  v1::WorkerMessage message;
  *message.mutable_rank_exited() = exit;
  SendLocked(message);
}

void FakeWorker::QuiesceLocked(Hosted& hosted) {
  hosted.state.set_quiesced(true);
  v1::WorkerMessage message;
  message.mutable_quiesced()->set_job_id(hosted.state.job_id());
  message.mutable_quiesced()->set_generation(hosted.state.generation());
  SendLocked(message);
}

void FakeWorker::ExitRank(const std::string& job, int rank, int exit_code, int signal) {
  std::lock_guard lock(mutex_);
  Hosted& hosted = hosted_.at(job);
  ExitRankLocked(hosted, rank, {exit_code, signal});
  if (hosted.state.exited_size() == static_cast<int>(hosted.ranks.size())) QuiesceLocked(hosted);
}

void FakeWorker::FinishJob(const std::string& job) {
  std::vector<int> ranks;
  {
    std::lock_guard lock(mutex_);
    ranks = hosted_.at(job).ranks;
  }
  for (const int rank : ranks) ExitRank(job, rank, 0);
}

void FakeWorker::ReportShard(const std::string& job, int rank, std::int64_t step,
                             const std::string& directory) {
  std::lock_guard lock(mutex_);
  v1::TrainerReport report;
  report.set_rank(rank);
  v1::ShardWritten& written = *report.mutable_shard_written();
  written.set_step(step);
  written.set_directory(directory);
  written.mutable_shard()->set_rank(rank);
  written.mutable_shard()->set_file(ShardFileName(rank));
  written.mutable_shard()->set_bytes(1024);
  written.mutable_shard()->set_checksum("xxh3:0123456789abcdef");
  ReportLocked(hosted_.at(job), std::move(report));
}

void FakeWorker::ReportProgress(const std::string& job, int rank, std::int64_t step, double loss) {
  std::lock_guard lock(mutex_);
  v1::WorkerMessage message;
  v1::Progress& progress = *message.mutable_progress();
  progress.set_job_id(job);
  progress.set_generation(hosted_.at(job).state.generation());
  v1::RankProgress& row = *progress.add_ranks();
  row.set_rank(rank);
  row.set_step(step);
  row.set_phase(v1::TRAIN_PHASE_FORWARD);
  row.set_loss(loss);
  row.set_max_steps(100);
  row.set_step_seconds(0.1);
  row.set_tokens_per_second(5000);
  SendLocked(message);
}

void FakeWorker::ReportProgressOfAll(const v1::RankProgress& sample) {
  std::lock_guard lock(mutex_);
  for (const auto& [job, hosted] : hosted_) {
    if (!hosted.state.launched()) continue;
    v1::WorkerMessage message;
    v1::Progress& progress = *message.mutable_progress();
    progress.set_job_id(job);
    progress.set_generation(hosted.state.generation());
    for (const int rank : hosted.ranks) {
      v1::RankProgress& row = *progress.add_ranks();
      row = sample;
      row.set_rank(rank);
    }
    SendLocked(message);
  }
}

void FakeWorker::Send(const v1::WorkerMessage& message) {
  std::lock_guard lock(mutex_);
  SendLocked(message);
}

void FakeWorker::SendLocked(const v1::WorkerMessage& message) {
  if (stream_) stream_->SendLocked(message);
}

bool FakeWorker::WaitFor(const Predicate& predicate, std::chrono::seconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, std::chrono::steady_clock::now() + limit, [&] {
    return std::any_of(received_.begin(), received_.end(), predicate);
  });
}

bool FakeWorker::WaitForLaunch(const std::string& job, std::int64_t generation) {
  return WaitFor([&](const Coordinator& message) {
    return message.has_launch() && message.launch().job_id() == job &&
           (generation == 0 || message.launch().generation() == generation);
  });
}

int FakeWorker::Count(const Predicate& predicate) {
  std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(received_.begin(), received_.end(), predicate));
}

}  // namespace muster::testing
