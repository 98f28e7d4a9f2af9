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

void Fill(const RankProgress& from, v1::RankProgress* to) {
  to->set_rank(from.rank);
  to->set_step(from.step);
  to->set_phase(from.phase);
  to->set_loss(from.loss);
  to->set_grad_norm(from.grad_norm);
  to->set_learning_rate(from.learning_rate);
  to->set_step_seconds(from.step_seconds);
  to->set_tokens_per_second(from.tokens_per_second);
  to->set_tokens(from.tokens);
  to->set_max_steps(from.max_steps);
  to->set_rss_bytes(from.rss_bytes);
  to->set_micro_batch(from.micro_batch);
  to->set_stores(from.stores);
  for (const CollectiveCounts& counts : from.collectives) {
    v1::CollectiveCounts* out = to->add_collectives();
    out->set_group(ValidUtf8(counts.group));
    out->set_enqueued(counts.enqueued);
    out->set_started(counts.started);
    out->set_completed(counts.completed);
    out->set_bytes(counts.bytes);
  }
  to->set_busy_seconds(from.busy_seconds);
  to->set_wait_seconds(from.wait_seconds);
  to->set_steps_done(from.steps_done);
  to->set_process_state(from.process_state);
  to->set_cpu_seconds(from.cpu_seconds);
  for (const double seconds : from.phase_seconds) to->add_phase_seconds(seconds);
  to->set_snapshot_step(from.snapshot_step);
  to->set_device_bytes(from.device_bytes);
  to->set_device_capacity_bytes(from.device_capacity_bytes);
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
  to->set_out_of_memory(from.out_of_memory);
  to->set_asked_to_stop(from.asked_to_stop);
  if (from.last) Fill(*from.last, to->mutable_last());
  for (const std::string& fact : from.facts) to->add_facts(ValidUtf8(fact));
}

void Fill(const Quiesced& from, v1::Quiesced* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  for (const std::int64_t pid : from.unkillable_pids) to->add_unkillable_pids(pid);
  for (const int rank : from.parked_ranks) to->add_parked_ranks(rank);
  to->set_standbys(from.standbys);
}

void Fill(const Progress& from, v1::Progress* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  for (const RankProgress& rank : from.ranks) Fill(rank, to->add_ranks());
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

void Fill(const ProbeResult& from, v1::ProbeResult* to) {
  to->set_probe_id(from.probe_id);
  to->set_node(from.node.value);
  to->set_outcome(static_cast<v1::ProbeOutcome>(from.outcome));
}

void Fill(const NodeNotice& from, v1::NodeNotice* to) {
  to->set_kind(static_cast<v1::NodeNoticeKind>(from.kind));
  to->set_detail(ValidUtf8(from.detail));
  to->set_deadline_seconds(from.deadline_seconds);
  for (const std::string& device : from.devices) to->add_devices(device);
  to->set_fatal(from.fatal);
  for (const std::string& detail : from.standing) to->add_standing(ValidUtf8(detail));
}

void Fill(const FaultDone& from, v1::FaultDone* to) {
  to->set_request_id(from.request_id);
  to->set_error(ValidUtf8(from.error));
}

void Fill(const CheckpointScrubbed& from, v1::CheckpointScrubbed* to) {
  to->set_scrub_id(from.scrub_id);
  to->set_job_id(from.job.value);
  to->set_directory(from.directory);
  to->set_outcome(static_cast<v1::ScrubOutcome>(from.outcome));
  to->set_file(ValidUtf8(from.file));
  to->set_detail(ValidUtf8(from.detail));
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
  bool operator()(const ProbeResult& m) const { return Fill(m, out->mutable_probe_result()), true; }
  bool operator()(const NodeNotice& m) const { return Fill(m, out->mutable_node_notice()), true; }
  bool operator()(const FaultDone& m) const { return Fill(m, out->mutable_fault_done()), true; }
  bool operator()(const CheckpointScrubbed& m) const {
    return Fill(m, out->mutable_checkpoint_scrubbed()), true;
  }
};

CheckpointInfo FromCheckpoint(const v1::CheckpointInfo& from) {
  CheckpointInfo to{.step = from.step(),
                    .generation = from.generation(),
                    .directory = from.directory(),
                    .world_size = from.world_size(),
                    .committed_unix_ms = from.committed_unix_ms()};
  for (const v1::ShardInfo& shard : from.shards())
    to.shards.push_back({shard.rank(), shard.file(), shard.bytes(), shard.checksum()});
  if (from.has_eval_loss()) to.eval_loss = from.eval_loss();
  return to;
}

Prepare FromPrepare(const v1::Prepare& from) {
  Prepare to{.job = {from.job_id()},
             .job_name = from.job_name(),
             .generation = from.generation(),
             .spec_yaml = from.spec_yaml(),
             .output_dir = from.output_dir(),
             .hosts_master = from.hosts_master(),
             .master_bind_address = from.master_bind_address(),
             .spare = from.spare(),
             .standbys = from.standbys()};
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
            .max_restarts = from.max_restarts(),
            .rendezvous_token = from.rendezvous_token()};
  for (const v1::CheckpointInfo& checkpoint : from.resume())
    to.resume.push_back(FromCheckpoint(checkpoint));
  for (const v1::RankPlacement& rank : from.ranks())
    to.ranks.push_back({rank.rank(), rank.local_rank()});
  to.buddy_ring.assign(from.buddy_ring().begin(), from.buddy_ring().end());
  return to;
}

Abort FromAbort(const v1::Abort& from) {
  return {.job = {from.job_id()},
          .generation = from.generation(),
          .reason = from.reason(),
          .grace_seconds = from.grace_seconds(),
          .park_seconds = from.park_seconds(),
          .kill_ranks = {from.kill_ranks().begin(), from.kill_ranks().end()}};
}

CheckpointCommitted FromCommitted(const v1::CheckpointCommitted& from) {
  return {.job = {from.job_id()},
          .generation = from.generation(),
          .output_dir = from.output_dir(),
          .checkpoint = FromCheckpoint(from.checkpoint()),
          .prune = {from.prune().begin(), from.prune().end()}};
}

ScrubCheckpoint FromScrub(const v1::ScrubCheckpoint& from) {
  return {.scrub_id = from.scrub_id(),
          .job = {from.job_id()},
          .output_dir = from.output_dir(),
          .checkpoint = FromCheckpoint(from.checkpoint()),
          .max_bytes_per_second = from.max_bytes_per_second()};
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
    case v1::CoordinatorMessage::kScrubCheckpoint:
      return IsJobId(message.scrub_checkpoint().job_id());
    case v1::CoordinatorMessage::kStop: return IsJobId(message.stop().job_id());
    case v1::CoordinatorMessage::kInjectFault:
      return message.inject_fault().job_id().empty() || IsJobId(message.inject_fault().job_id());
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
  hello->set_failure_domain(identity.failure_domain);
  hello->set_allows_faults(identity.allows_faults);
  hello->set_pilot(identity.pilot);
  hello->set_gpus(identity.gpus);
  for (const std::string& line : identity.report) hello->add_report(ValidUtf8(line));
  for (const HostedGeneration& from : hosted) {
    v1::HostedGeneration* to = hello->add_hosted();
    to->set_job_id(from.job.value);
    to->set_generation(from.generation);
    to->set_prepared(from.prepared);
    to->set_master_port(from.master_port);
    to->set_launched(from.launched);
    to->set_quiesced(from.quiesced);
    for (const int rank : from.parked_ranks) to->add_parked_ranks(rank);
    to->set_standbys(from.standbys);
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
                     message.welcome().progress_ms(), message.welcome().epoch()};
    case v1::CoordinatorMessage::kPrepare: return FromPrepare(message.prepare());
    case v1::CoordinatorMessage::kLaunch: return FromLaunch(message.launch());
    case v1::CoordinatorMessage::kAbort: return FromAbort(message.abort());
    case v1::CoordinatorMessage::kRelease: return Release{{message.release().job_id()}};
    case v1::CoordinatorMessage::kCheckpointCommitted:
      return FromCommitted(message.checkpoint_committed());
    case v1::CoordinatorMessage::kReadLog: {
      const v1::ReadLog& from = message.read_log();
      return ReadLog{from.request_id(), {from.job_id()},    from.generation(), from.rank(),
                     from.offset(),     from.limit_bytes(), from.output_dir()};
    }
    case v1::CoordinatorMessage::kProbe: {
      const v1::Probe& from = message.probe();
      return Probe{from.probe_id(), {from.node()}, from.address(), from.port(), from.timeout_ms()};
    }
    case v1::CoordinatorMessage::kInjectFault: {
      const v1::InjectFault& from = message.inject_fault();
      return InjectFault{from.request_id(), {from.job_id()}, from.generation(),
                         from.rank(),       from.kind(),     from.argument()};
    }
    case v1::CoordinatorMessage::kStop:
      return Stop{{message.stop().job_id()}, message.stop().generation(), message.stop().reason()};
    case v1::CoordinatorMessage::kScrubCheckpoint: return FromScrub(message.scrub_checkpoint());
    case v1::CoordinatorMessage::kCancelScrub:
      return CancelScrub{message.cancel_scrub().scrub_id()};
    case v1::CoordinatorMessage::BODY_NOT_SET: break;
  }
  return std::nullopt;
}

}  // namespace muster::worker
