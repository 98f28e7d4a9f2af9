#include "worker/service/conversions.h"

#include "common/base/version.h"
#include "worker/service/trainer_report.h"

namespace muster::worker {
namespace {

void Fill(const Prepared& from, v1::Prepared* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_ok(from.error.empty());
  to->set_error(from.error);
  to->set_retryable(from.retryable);
  to->set_master_port(from.master_port);
  if (!from.cuda) return;
  v1::CudaStack& cuda = *to->mutable_cuda();
  cuda.set_plugin(from.cuda->plugin);
  cuda.set_runtime(from.cuda->runtime);
  cuda.set_driver(from.cuda->driver);
  cuda.set_nccl(from.cuda->nccl);
}

void Fill(const RankStarted& from, v1::RankStarted* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  to->set_pid(from.pid);
}

void Fill(const RankExited& from, v1::RankExited* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  to->mutable_exit()->set_exit_code(from.exit.exit_code);
  to->mutable_exit()->set_signal(from.exit.signal);
  to->set_age_seconds(from.age_seconds);
  for (const std::string& line : from.log_tail) to->add_log_tail(ValidUtf8(line));
  to->set_node_stopped(from.node_stopped);
  to->set_ended(from.ended);
}

void Fill(const Quiesced& from, v1::Quiesced* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  for (const std::int64_t pid : from.unkillable_pids) to->add_unkillable_pids(pid);
}

void Fill(const Progress& from, v1::Progress* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  for (const RankProgress& rank : from.ranks) {
    v1::RankProgress* out = to->add_ranks();
    out->set_rank(rank.rank);
    out->set_step(rank.step);
    out->set_phase(rank.phase);
    out->set_loss(rank.loss);
    out->set_grad_norm(rank.grad_norm);
    out->set_learning_rate(rank.learning_rate);
    out->set_step_seconds(rank.step_seconds);
    out->set_tokens_per_second(rank.tokens_per_second);
    out->set_tokens(rank.tokens);
    out->set_max_steps(rank.max_steps);
    out->set_rss_bytes(rank.rss_bytes);
  }
}

void Fill(const ManifestWritten& from, v1::ManifestWritten* to) {
  to->set_job_id(from.job.value);
  to->set_directory(from.directory);
  to->set_ok(from.error.empty());
  to->set_error(from.error);
}

void Fill(const LogChunk& from, v1::LogChunk* to) {
  to->set_request_id(from.request_id);
  to->set_data(from.data);
  to->set_next_offset(from.next_offset);
  to->set_at_end(from.at_end);
  to->set_path(from.path);
  to->set_error(from.error);
}

// Puts each kind of message into its place; false: it has none.
struct Writer {
  v1::WorkerMessage* out;

  bool operator()(const Prepared& m) const { return Fill(m, out->mutable_prepared()), true; }
  bool operator()(const RankStarted& m) const { return Fill(m, out->mutable_rank_started()), true; }
  bool operator()(const RankExited& m) const { return Fill(m, out->mutable_rank_exited()), true; }
  bool operator()(const Quiesced& m) const { return Fill(m, out->mutable_quiesced()), true; }
  bool operator()(const TrainerReport& m) const {
    return FillTrainerReport(m, out->mutable_trainer_report());
  }
  bool operator()(const Progress& m) const { return Fill(m, out->mutable_progress()), true; }
  bool operator()(const ManifestWritten& m) const {
    return Fill(m, out->mutable_manifest_written()), true;
  }
  bool operator()(const LogChunk& m) const { return Fill(m, out->mutable_log_chunk()), true; }
  bool operator()(const Released& m) const {
    return out->mutable_released()->set_job_id(m.job.value), true;
  }
  bool operator()(const Heartbeat&) const { return out->mutable_heartbeat(), true; }
};

CheckpointInfo FromCheckpoint(const v1::CheckpointInfo& from) {
  CheckpointInfo to{.step = from.step(),
                    .generation = from.generation(),
                    .directory = from.directory(),
                    .world_size = from.world_size(),
                    .committed_unix_ms = from.committed_unix_ms()};
  for (const v1::ShardInfo& shard : from.shards())
    to.shards.push_back({shard.rank(), shard.file(), shard.bytes(), shard.checksum()});
  return to;
}

Prepare FromPrepare(const v1::Prepare& from) {
  Prepare to{.job = {from.job_id()},
             .job_name = from.job_name(),
             .generation = from.generation(),
             .spec_yaml = from.spec_yaml(),
             .output_dir = from.output_dir(),
             .hosts_master = from.hosts_master(),
             .master_bind_address = from.master_bind_address()};
  for (const v1::RankPlacement& rank : from.ranks())
    to.ranks.push_back({rank.rank(), rank.local_rank()});
  return to;
}

Launch FromLaunch(const v1::Launch& from) {
  Launch to{.job = {from.job_id()},
            .generation = from.generation(),
            .master_address = from.master_address(),
            .master_port = from.master_port(),
            .world_size = from.world_size(),
            .node_rank = from.node_rank(),
            .node_count = from.node_count(),
            .local_world_size = from.local_world_size(),
            .restart_count = from.restart_count(),
            .max_restarts = from.max_restarts()};
  for (const v1::CheckpointInfo& checkpoint : from.resume())
    to.resume.push_back(FromCheckpoint(checkpoint));
  return to;
}

CheckpointCommitted FromCommitted(const v1::CheckpointCommitted& from) {
  return {.job = {from.job_id()},
          .generation = from.generation(),
          .output_dir = from.output_dir(),
          .checkpoint = FromCheckpoint(from.checkpoint()),
          .prune = {from.prune().begin(), from.prune().end()}};
}

// A job's id becomes the name of a directory that is removed one day.
bool IsJobId(const std::string& id) {
  constexpr char kAllowed[] = "0123456789abcdef";
  return !id.empty() && id.size() <= 64 && id.find_first_not_of(kAllowed) == std::string::npos;
}

// Whether a message that is about a job names one properly.
bool NamesAJob(const v1::CoordinatorMessage& message) {
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kPrepare: return IsJobId(message.prepare().job_id());
    case v1::CoordinatorMessage::kLaunch: return IsJobId(message.launch().job_id());
    case v1::CoordinatorMessage::kAbort: return IsJobId(message.abort().job_id());
    case v1::CoordinatorMessage::kRelease: return IsJobId(message.release().job_id());
    case v1::CoordinatorMessage::kCheckpointCommitted:
      return IsJobId(message.checkpoint_committed().job_id());
    case v1::CoordinatorMessage::kReadLog: return IsJobId(message.read_log().job_id());
    default: return true;
  }
}

}  // namespace

v1::WorkerMessage MakeHello(const WorkerIdentity& identity,
                            const std::vector<HostedGeneration>& hosted) {
  v1::WorkerMessage message;
  v1::Hello* hello = message.mutable_hello();
  hello->set_protocol_version(kProtocolVersion);
  hello->set_version(kVersion);
  hello->set_node(identity.node);
  hello->set_address(identity.address);
  hello->set_host_id(identity.host_id);
  hello->set_slots(identity.slots);
  hello->set_pid(identity.pid);
  hello->set_metrics_port(identity.metrics_port);
  hello->set_instance(identity.instance);
  for (const HostedGeneration& from : hosted) {
    v1::HostedGeneration* to = hello->add_hosted();
    to->set_job_id(from.job.value);
    to->set_generation(from.generation);
    to->set_prepared(from.prepared);
    to->set_master_port(from.master_port);
    to->set_launched(from.launched);
    to->set_quiesced(from.quiesced);
    for (const RankExited& exited : from.exited) Fill(exited, to->add_exited());
    for (const RankStarted& started : from.started) Fill(started, to->add_started());
    for (const TrainerReport& report : from.reports)
      if (v1::TrainerReport out; FillTrainerReport(report, &out)) *to->add_reports() = out;
  }
  return message;
}

std::optional<v1::WorkerMessage> ToProto(const WorkerMessage& message) {
  v1::WorkerMessage out;
  if (!std::visit(Writer{&out}, message)) return std::nullopt;
  return out;
}

std::optional<CoordinatorMessage> FromProto(const v1::CoordinatorMessage& message) {
  if (!NamesAJob(message)) return std::nullopt;
  switch (message.body_case()) {
    case v1::CoordinatorMessage::kWelcome:
      return Welcome{message.welcome().cluster(), message.welcome().heartbeat_ms(),
                     message.welcome().progress_ms()};
    case v1::CoordinatorMessage::kPrepare: return FromPrepare(message.prepare());
    case v1::CoordinatorMessage::kLaunch: return FromLaunch(message.launch());
    case v1::CoordinatorMessage::kAbort:
      return Abort{{message.abort().job_id()},
                   message.abort().generation(),
                   message.abort().reason(),
                   message.abort().grace_seconds()};
    case v1::CoordinatorMessage::kRelease: return Release{{message.release().job_id()}};
    case v1::CoordinatorMessage::kCheckpointCommitted:
      return FromCommitted(message.checkpoint_committed());
    case v1::CoordinatorMessage::kReadLog: {
      const v1::ReadLog& from = message.read_log();
      return ReadLog{from.request_id(), {from.job_id()},    from.generation(), from.rank(),
                     from.offset(),     from.limit_bytes(), from.output_dir()};
    }
    case v1::CoordinatorMessage::kStop:
    case v1::CoordinatorMessage::kProbe:
    case v1::CoordinatorMessage::kInjectFault:
    case v1::CoordinatorMessage::BODY_NOT_SET: break;
  }
  return std::nullopt;
}

}  // namespace muster::worker
