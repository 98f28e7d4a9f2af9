#include "common/wire/codec.h"

#include <string>
#include <utility>

#include "common/base/ids.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/rpc/message_limits.h"
#include "common/wire/inventory_codec.h"
#include "common/wire/message_checks.h"

namespace muster {
namespace {

constexpr std::size_t kMaxVersionBytes = 64;

// --- parts of messages: each pair of functions side by side ---

void Fill(const ProcessExit& from, v1::ExitStatus* to) {
  to->set_exit_code(from.exit_code);
  to->set_signal(from.signal);
}

ProcessExit Read(const v1::ExitStatus& from) {
  return {.exit_code = from.exit_code(), .signal = from.signal()};
}

void Fill(const ShardInfo& from, v1::ShardInfo* to) {
  to->set_rank(from.rank);
  to->set_file(from.file);
  to->set_bytes(from.bytes);
  to->set_checksum(from.checksum);
}

ShardInfo Read(const v1::ShardInfo& from) {
  return {
      .rank = from.rank(), .file = from.file(), .bytes = from.bytes(), .checksum = from.checksum()};
}

void Fill(const CheckpointInfo& from, v1::CheckpointInfo* to) {
  to->set_step(from.step);
  to->set_generation(from.generation);
  to->set_directory(from.directory);
  to->set_world_size(from.world_size);
  for (const ShardInfo& shard : from.shards) Fill(shard, to->add_shards());
  to->set_committed_unix_ms(from.committed_unix_ms);
  if (from.eval_loss) to->set_eval_loss(*from.eval_loss);
}

CheckpointInfo Read(const v1::CheckpointInfo& from) {
  CheckpointInfo to{.step = from.step(),
                    .generation = from.generation(),
                    .directory = from.directory(),
                    .world_size = from.world_size(),
                    .committed_unix_ms = from.committed_unix_ms()};
  for (const v1::ShardInfo& shard : from.shards()) to.shards.push_back(Read(shard));
  if (from.has_eval_loss()) to.eval_loss = from.eval_loss();
  return to;
}

void Fill(const CollectiveCounts& from, v1::CollectiveCounts* to) {
  to->set_group(ValidUtf8(from.group));
  to->set_enqueued(from.enqueued);
  to->set_started(from.started);
  to->set_completed(from.completed);
  to->set_bytes(from.bytes);
}

CollectiveCounts Read(const v1::CollectiveCounts& from) {
  return {.group = from.group(),
          .enqueued = from.enqueued(),
          .started = from.started(),
          .completed = from.completed(),
          .bytes = from.bytes()};
}

// The page counts phases from 0, a message from 1: its 0 is a phase that is not known.
v1::TrainPhase ToProto(std::optional<TrainPhase> phase) {
  return phase ? static_cast<v1::TrainPhase>(static_cast<int>(*phase) + 1)
               : v1::TRAIN_PHASE_UNSPECIFIED;
}

std::optional<TrainPhase> FromProto(v1::TrainPhase phase) {
  if (phase < v1::TRAIN_PHASE_STARTING || phase > kTrainPhaseCount) return std::nullopt;
  return static_cast<TrainPhase>(phase - 1);
}

void Fill(const RankProgress& from, v1::RankProgress* to) {
  to->set_rank(from.rank);
  to->set_step(from.step);
  to->set_phase(ToProto(from.phase));
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
  for (const CollectiveCounts& counts : from.collectives) Fill(counts, to->add_collectives());
  to->set_busy_seconds(from.busy_seconds);
  to->set_wait_seconds(from.wait_seconds);
  to->set_steps_done(from.steps_done);
  to->set_process_state(from.process_state);
  to->set_cpu_seconds(from.cpu_seconds);
  to->mutable_phase_seconds()->Add(from.phase_seconds.begin(), from.phase_seconds.end());
  to->set_snapshot_step(from.snapshot_step);
  to->set_device_bytes(from.device_bytes);
  to->set_device_capacity_bytes(from.device_capacity_bytes);
  to->set_quiet_seconds(from.quiet_seconds);
  to->set_quiet_samples(from.quiet_samples);
  to->set_slowest_step_seconds(from.slowest_step_seconds);
  to->set_largest_expert_share(from.routers.largest_share);
  to->set_smallest_expert_share(from.routers.smallest_share);
  to->set_router_entropy(from.routers.entropy);
  to->set_idle_experts(from.routers.idle);
}

RankProgress Read(const v1::RankProgress& from) {
  RankProgress to{.rank = from.rank(),
                  .step = from.step(),
                  .phase = FromProto(from.phase()),
                  .loss = from.loss(),
                  .grad_norm = from.grad_norm(),
                  .learning_rate = from.learning_rate(),
                  .step_seconds = from.step_seconds(),
                  .tokens_per_second = from.tokens_per_second(),
                  .tokens = from.tokens(),
                  .max_steps = from.max_steps(),
                  .rss_bytes = from.rss_bytes(),
                  .micro_batch = from.micro_batch(),
                  .stores = from.stores(),
                  .busy_seconds = from.busy_seconds(),
                  .wait_seconds = from.wait_seconds(),
                  .steps_done = from.steps_done(),
                  .process_state = from.process_state(),
                  .cpu_seconds = from.cpu_seconds(),
                  .phase_seconds = {from.phase_seconds().begin(), from.phase_seconds().end()},
                  .snapshot_step = from.snapshot_step(),
                  .device_bytes = from.device_bytes(),
                  .device_capacity_bytes = from.device_capacity_bytes(),
                  .quiet_seconds = from.quiet_seconds(),
                  .quiet_samples = from.quiet_samples(),
                  .slowest_step_seconds = from.slowest_step_seconds(),
                  .routers = {.largest_share = from.largest_expert_share(),
                              .smallest_share = from.smallest_expert_share(),
                              .entropy = from.router_entropy(),
                              .idle = from.idle_experts()}};
  for (const v1::CollectiveCounts& counts : from.collectives())
    to.collectives.push_back(Read(counts));
  return to;
}

// --- worker to coordinator ---

void Fill(const Prepared& from, v1::Prepared* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_error(ValidUtf8(from.error));
  to->set_retryable(from.retryable);
  to->set_master_port(from.master_port);
  if (!from.cuda) return;
  v1::CudaStack& cuda = *to->mutable_cuda();
  cuda.set_plugin(from.cuda->plugin);
  cuda.set_runtime(from.cuda->runtime);
  cuda.set_driver(from.cuda->driver);
  cuda.set_nccl(from.cuda->nccl);
}

Result<Prepared> Read(const v1::Prepared& from) {
  Prepared to{.job = {from.job_id()},
              .generation = from.generation(),
              .error = from.error(),
              .retryable = from.retryable(),
              .master_port = from.master_port()};
  if (from.has_cuda()) {
    to.cuda = CudaStack{.plugin = from.cuda().plugin(),
                        .runtime = from.cuda().runtime(),
                        .driver = from.cuda().driver(),
                        .nccl = from.cuda().nccl()};
  }
  return to;
}

void Fill(const RankStarted& from, v1::RankStarted* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  to->set_pid(from.pid);
}

Result<RankStarted> Read(const v1::RankStarted& from) {
  MUSTER_RETURN_IF_ERROR(CheckRank(from));
  return RankStarted{.job = {from.job_id()},
                     .generation = from.generation(),
                     .rank = from.rank(),
                     .pid = from.pid()};
}

// The fields of a RankEnd lie beside the others.
void Fill(const RankEnd& from, v1::RankExited* to) {
  Fill(from.exit, to->mutable_exit());
  to->set_node_stopped(from.node_stopped);
  to->set_ended(from.ended);
  to->set_out_of_memory(from.out_of_memory);
  to->set_asked_to_stop(from.asked_to_stop);
}

RankEnd ReadEnd(const v1::RankExited& from) {
  return {.exit = Read(from.exit()),
          .node_stopped = from.node_stopped(),
          .ended = from.ended(),
          .out_of_memory = from.out_of_memory(),
          .asked_to_stop = from.asked_to_stop()};
}

void Fill(const RankExited& from, v1::RankExited* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  Fill(from.end, to);
  to->set_age_seconds(from.age_seconds);
  for (const std::string& line : from.log_tail) to->add_log_tail(ValidUtf8(line));
  if (from.last) Fill(*from.last, to->mutable_last());
  for (const std::string& fact : from.facts) to->add_facts(ValidUtf8(fact));
}

Result<RankExited> Read(const v1::RankExited& from) {
  MUSTER_RETURN_IF_ERROR(CheckRank(from));
  RankExited to{.job = {from.job_id()},
                .generation = from.generation(),
                .rank = from.rank(),
                .end = ReadEnd(from),
                .age_seconds = from.age_seconds(),
                .log_tail = {from.log_tail().begin(), from.log_tail().end()},
                .facts = {from.facts().begin(), from.facts().end()}};
  if (from.has_last()) to.last = Read(from.last());
  return to;
}

void Fill(const Quiesced& from, v1::Quiesced* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->mutable_unkillable_pids()->Add(from.unkillable_pids.begin(), from.unkillable_pids.end());
  to->mutable_parked_ranks()->Add(from.parked_ranks.begin(), from.parked_ranks.end());
  to->set_standbys(from.standbys);
  to->set_next_master_port(from.next_master_port);
}

Result<Quiesced> Read(const v1::Quiesced& from) {
  return Quiesced{.job = {from.job_id()},
                  .generation = from.generation(),
                  .unkillable_pids = {from.unkillable_pids().begin(), from.unkillable_pids().end()},
                  .parked_ranks = {from.parked_ranks().begin(), from.parked_ranks().end()},
                  .standbys = from.standbys(),
                  .next_master_port = from.next_master_port()};
}

// The place of each kind of report in the message.
struct FillBody {
  v1::TrainerReport* to;

  void operator()(const Formed&) const { to->mutable_formed(); }
  void operator()(const Resumed& from) const {
    v1::Resumed& resumed = *to->mutable_resumed();
    resumed.set_step(from.step);
    resumed.set_from(ValidUtf8(from.from));
    for (const RejectedCheckpoint& each : from.rejected) {
      v1::RejectedCheckpoint& rejected = *resumed.add_rejected();
      rejected.set_directory(ValidUtf8(each.directory));
      rejected.set_reason(ValidUtf8(each.reason));
    }
  }
  void operator()(const FirstStep& from) const { to->mutable_first_step()->set_step(from.step); }
  void operator()(const ShardWritten& from) const {
    v1::ShardWritten& written = *to->mutable_shard_written();
    written.set_step(from.step);
    written.set_directory(ValidUtf8(from.directory));
    Fill(from.shard, written.mutable_shard());
    if (from.eval_loss) written.set_eval_loss(*from.eval_loss);
  }
  void operator()(const CheckpointFailed& from) const {
    to->mutable_checkpoint_failed()->set_step(from.step);
    to->mutable_checkpoint_failed()->set_kind(static_cast<v1::CheckpointTrouble>(from.kind));
    to->mutable_checkpoint_failed()->set_reason(ValidUtf8(from.reason));
  }
  void operator()(const TrainerError& from) const {
    to->mutable_error()->set_kind(ValidUtf8(from.kind));
    to->mutable_error()->set_message(ValidUtf8(from.message));
    to->mutable_error()->set_step(from.step);
    to->mutable_error()->set_symptom(from.symptom);
  }
  void operator()(const TrainerNote& from) const {
    to->mutable_note()->set_severity(ValidUtf8(from.severity));
    to->mutable_note()->set_message(ValidUtf8(from.message));
  }
  void operator()(const Finished& from) const {
    to->mutable_finished()->set_step(from.step);
    to->mutable_finished()->set_model_dir(ValidUtf8(from.model_dir));
  }
  void operator()(const Parked& from) const { to->mutable_parked()->set_step(from.step); }
};

void Fill(const TrainerReport& from, v1::TrainerReport* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  std::visit(FillBody{to}, from.body);
}

Resumed ReadResumed(const v1::Resumed& from) {
  Resumed to{.step = from.step(), .from = from.from()};
  for (const v1::RejectedCheckpoint& rejected : from.rejected())
    to.rejected.push_back({rejected.directory(), rejected.reason()});
  return to;
}

ShardWritten ReadShardWritten(const v1::ShardWritten& from) {
  ShardWritten to{.step = from.step(), .directory = from.directory(), .shard = Read(from.shard())};
  if (from.has_eval_loss()) to.eval_loss = from.eval_loss();
  return to;
}

CheckpointFailed ReadCheckpointFailed(const v1::CheckpointFailed& from) {
  const bool known = v1::CheckpointTrouble_IsValid(from.kind());
  return {.step = from.step(),
          .kind = known ? static_cast<CheckpointTrouble>(from.kind()) : CheckpointTrouble::kOther,
          .reason = from.reason()};
}

Result<TrainerReport> Read(const v1::TrainerReport& from) {
  MUSTER_RETURN_IF_ERROR(CheckRank(from));
  TrainerReport to{
      .job = {from.job_id()}, .generation = from.generation(), .rank = from.rank(), .body = {}};
  switch (from.body_case()) {
    case v1::TrainerReport::kFormed: to.body = Formed{}; return to;
    case v1::TrainerReport::kResumed: to.body = ReadResumed(from.resumed()); return to;
    case v1::TrainerReport::kFirstStep: to.body = FirstStep{from.first_step().step()}; return to;
    case v1::TrainerReport::kShardWritten:
      to.body = ReadShardWritten(from.shard_written());
      return to;
    case v1::TrainerReport::kCheckpointFailed:
      to.body = ReadCheckpointFailed(from.checkpoint_failed());
      return to;
    case v1::TrainerReport::kError:
      to.body = TrainerError{.kind = from.error().kind(),
                             .message = from.error().message(),
                             .step = from.error().step(),
                             .symptom = from.error().symptom()};
      return to;
    case v1::TrainerReport::kNote:
      to.body = TrainerNote{.severity = from.note().severity(), .message = from.note().message()};
      return to;
    case v1::TrainerReport::kFinished:
      to.body = Finished{.step = from.finished().step(), .model_dir = from.finished().model_dir()};
      return to;
    case v1::TrainerReport::kParked: to.body = Parked{from.parked().step()}; return to;
    case v1::TrainerReport::BODY_NOT_SET: break;
  }
  return Unimplemented("trainer report without a known body");
}

void Fill(const Progress& from, v1::Progress* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  for (const RankProgress& rank : from.ranks) Fill(rank, to->add_ranks());
}

Result<Progress> Read(const v1::Progress& from) {
  Progress to{.job = {from.job_id()}, .generation = from.generation(), .ranks = {}};
  for (const v1::RankProgress& rank : from.ranks()) {
    MUSTER_RETURN_IF_ERROR(CheckRank(rank));
    to.ranks.push_back(Read(rank));
  }
  return to;
}

void Fill(const ManifestWritten& from, v1::ManifestWritten* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_directory(from.directory);
  to->set_error(ValidUtf8(from.error));
  for (const std::string& directory : from.pruned) to->add_pruned(directory);
}

Result<ManifestWritten> Read(const v1::ManifestWritten& from) {
  return ManifestWritten{.job = {from.job_id()},
                         .generation = from.generation(),
                         .directory = from.directory(),
                         .error = from.error(),
                         .pruned = {from.pruned().begin(), from.pruned().end()}};
}

void Fill(const LogChunk& from, v1::LogChunk* to) {
  to->set_request_id(from.request_id);
  to->set_data(from.data);
  to->set_next_offset(from.next_offset);
  to->set_at_end(from.at_end);
  to->set_path(ValidUtf8(from.path));
  to->set_error(ValidUtf8(from.error));
  to->set_busy(from.busy);
}

Result<LogChunk> Read(const v1::LogChunk& from) {
  return LogChunk{.request_id = from.request_id(),
                  .data = from.data(),
                  .next_offset = from.next_offset(),
                  .at_end = from.at_end(),
                  .path = from.path(),
                  .error = from.error(),
                  .busy = from.busy()};
}

void Fill(const Released& from, v1::Released* to) { to->set_job_id(from.job.value); }

Result<Released> Read(const v1::Released& from) { return Released{.job = {from.job_id()}}; }

void Fill(const ProbeResult& from, v1::ProbeResult* to) {
  to->set_probe_id(from.probe_id);
  to->set_node(from.node.value);
  to->set_outcome(static_cast<v1::ProbeOutcome>(from.outcome));
}

Result<ProbeResult> Read(const v1::ProbeResult& from) {
  if (from.outcome() < v1::PROBE_OUTCOME_ANSWERED || from.outcome() > v1::PROBE_OUTCOME_SILENT)
    return Unimplemented("probe result without a known outcome");
  return ProbeResult{.probe_id = from.probe_id(),
                     .node = {from.node()},
                     .outcome = static_cast<ProbeOutcome>(from.outcome())};
}

void Fill(const NodeNotice& from, v1::NodeNotice* to) {
  to->set_kind(static_cast<v1::NodeNoticeKind>(from.kind));
  to->set_detail(ValidUtf8(from.detail));
  to->set_deadline_seconds(from.deadline_seconds);
  for (const std::string& device : from.devices) to->add_devices(ValidUtf8(device));
  to->set_fatal(from.fatal);
  for (const std::string& detail : from.standing) to->add_standing(ValidUtf8(detail));
  to->set_by_pilot(from.by_pilot);
}

Result<NodeNotice> Read(const v1::NodeNotice& from) {
  if (from.kind() < v1::NODE_NOTICE_KIND_DRAIN || from.kind() > v1::NODE_NOTICE_KIND_DEVICES_IN_USE)
    return Unimplemented("node notice of an unknown kind");
  return NodeNotice{.kind = static_cast<NodeNoticeKind>(from.kind()),
                    .detail = from.detail(),
                    .deadline_seconds = from.deadline_seconds(),
                    .devices = {from.devices().begin(), from.devices().end()},
                    .fatal = from.fatal(),
                    .standing = {from.standing().begin(), from.standing().end()},
                    .by_pilot = from.by_pilot()};
}

void Fill(const FaultDone& from, v1::FaultDone* to) {
  to->set_request_id(from.request_id);
  to->set_error(ValidUtf8(from.error));
}

Result<FaultDone> Read(const v1::FaultDone& from) {
  return FaultDone{.request_id = from.request_id(), .error = from.error()};
}

void Fill(const CheckpointScrubbed& from, v1::CheckpointScrubbed* to) {
  to->set_scrub_id(from.scrub_id);
  to->set_job_id(from.job.value);
  to->set_directory(from.directory);
  to->set_outcome(static_cast<v1::ScrubOutcome>(from.outcome));
  to->set_file(ValidUtf8(from.file));
  to->set_detail(ValidUtf8(from.detail));
}

Result<CheckpointScrubbed> Read(const v1::CheckpointScrubbed& from) {
  if (from.outcome() < v1::SCRUB_OUTCOME_WHOLE || from.outcome() > v1::SCRUB_OUTCOME_CALLED_OFF)
    return Unimplemented("the outcome of a scrub is not known");
  return CheckpointScrubbed{.scrub_id = from.scrub_id(),
                            .job = {from.job_id()},
                            .directory = from.directory(),
                            .outcome = static_cast<ScrubOutcome>(from.outcome()),
                            .file = from.file(),
                            .detail = from.detail()};
}

void Fill(const HostedGeneration& from, v1::HostedGeneration* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_prepared(from.prepared);
  to->set_master_port(from.master_port);
  to->set_launched(from.launched);
  to->set_quiesced(from.quiesced);
  for (const RankStarted& started : from.started) Fill(started, to->add_started());
  for (const RankExited& exited : from.exited) Fill(exited, to->add_exited());
  for (const TrainerReport& report : from.reports) {
    // A report over a limit must not cause the refusal of the whole Hello.
    v1::TrainerReport out;
    Fill(report, &out);
    if (ApplyLimits(&out).ok()) *to->add_reports() = std::move(out);
  }
  to->mutable_parked_ranks()->Add(from.parked_ranks.begin(), from.parked_ranks.end());
  to->set_standbys(from.standbys);
  to->mutable_unkillable_pids()->Add(from.unkillable_pids.begin(), from.unkillable_pids.end());
  to->mutable_devices()->Add(from.devices.begin(), from.devices.end());
}

Result<HostedGeneration> Read(const v1::HostedGeneration& from) {
  HostedGeneration to{
      .job = {from.job_id()},
      .generation = from.generation(),
      .prepared = from.prepared(),
      .master_port = from.master_port(),
      .launched = from.launched(),
      .quiesced = from.quiesced(),
      .parked_ranks = {from.parked_ranks().begin(), from.parked_ranks().end()},
      .standbys = from.standbys(),
      .unkillable_pids = {from.unkillable_pids().begin(), from.unkillable_pids().end()},
      .devices = {from.devices().begin(), from.devices().end()}};
  for (const v1::RankStarted& each : from.started()) {
    MUSTER_ASSIGN_OR_RETURN(RankStarted started, Read(each));
    to.started.push_back(std::move(started));
  }
  for (const v1::RankExited& each : from.exited()) {
    MUSTER_ASSIGN_OR_RETURN(RankExited exited, Read(each));
    to.exited.push_back(std::move(exited));
  }
  for (const v1::TrainerReport& each : from.reports()) {
    Result<TrainerReport> report = Read(each);
    if (report.status().code() == StatusCode::kUnimplemented) continue;  // of a newer trainer
    if (!report.ok()) return report.status();
    to.reports.push_back(*std::move(report));
  }
  return to;
}

// --- coordinator to worker ---

void Fill(const Welcome& from, v1::Welcome* to) {
  to->set_protocol_version(from.protocol_version);
  to->set_min_protocol_version(from.min_protocol_version);
  to->set_max_protocol_version(from.max_protocol_version);
  to->set_cluster(from.cluster);
  to->set_heartbeat_ms(from.heartbeat_ms);
  to->set_progress_ms(from.progress_ms);
  to->set_epoch(from.epoch);
}

Welcome Read(const v1::Welcome& from) {
  return {.protocol_version = from.protocol_version(),
          .min_protocol_version = from.min_protocol_version(),
          .max_protocol_version = from.max_protocol_version(),
          .cluster = from.cluster(),
          .heartbeat_ms = from.heartbeat_ms(),
          .progress_ms = from.progress_ms(),
          .epoch = from.epoch()};
}

void Fill(const Refused& from, v1::Refused* to) {
  to->set_reason(static_cast<v1::RefusalReason>(from.reason));
  to->set_min_protocol_version(from.min_protocol_version);
  to->set_max_protocol_version(from.max_protocol_version);
}

Refused Read(const v1::Refused& from) {
  return {.reason = static_cast<RefusalReason>(from.reason()),
          .min_protocol_version = from.min_protocol_version(),
          .max_protocol_version = from.max_protocol_version()};
}

void Fill(const Prepare& from, v1::Prepare* to) {
  to->set_job_id(from.job.value);
  to->set_job_name(from.job_name);
  to->set_generation(from.generation);
  to->set_spec_yaml(from.spec_yaml);
  to->set_output_dir(from.output_dir);
  for (const RankPlacement& rank : from.ranks) {
    v1::RankPlacement& placement = *to->add_ranks();
    placement.set_rank(rank.rank);
    placement.set_local_rank(rank.local_rank);
  }
  to->set_hosts_master(from.hosts_master);
  to->set_master_bind_address(from.master_bind_address);
  to->set_spare(from.spare);
  to->set_standbys(from.standbys);
  to->mutable_devices()->Add(from.devices.begin(), from.devices.end());
  to->set_account(from.account);
}

Prepare Read(const v1::Prepare& from) {
  Prepare to{.job = {from.job_id()},
             .job_name = from.job_name(),
             .generation = from.generation(),
             .spec_yaml = from.spec_yaml(),
             .output_dir = from.output_dir(),
             .hosts_master = from.hosts_master(),
             .master_bind_address = from.master_bind_address(),
             .spare = from.spare(),
             .standbys = from.standbys(),
             .devices = {from.devices().begin(), from.devices().end()},
             .account = from.account()};
  for (const v1::RankPlacement& rank : from.ranks())
    to.ranks.push_back({.rank = rank.rank(), .local_rank = rank.local_rank()});
  return to;
}

void Fill(const Launch& from, v1::Launch* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_master_address(from.master_address);
  to->set_master_port(from.master_port);
  to->set_world_size(from.world_size);
  to->set_node_rank(from.node_rank);
  to->set_node_count(from.node_count);
  to->set_local_world_size(from.local_world_size);
  to->set_restart_count(from.restart_count);
  to->set_max_restarts(from.max_restarts);
  for (const CheckpointInfo& checkpoint : from.resume) Fill(checkpoint, to->add_resume());
  to->mutable_buddy_ring()->Add(from.buddy_ring.begin(), from.buddy_ring.end());
  to->set_rendezvous_token(from.rendezvous_token);
}

Launch Read(const v1::Launch& from) {
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
            .buddy_ring = {from.buddy_ring().begin(), from.buddy_ring().end()},
            .rendezvous_token = from.rendezvous_token()};
  for (const v1::CheckpointInfo& checkpoint : from.resume()) to.resume.push_back(Read(checkpoint));
  return to;
}

void Fill(const Abort& from, v1::Abort* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_reason(from.reason);
  to->set_grace_seconds(from.grace_seconds);
  to->set_park_seconds(from.park_seconds);
  to->mutable_kill_ranks()->Add(from.kill_ranks.begin(), from.kill_ranks.end());
  to->set_next_master_bind_address(from.next_master_bind_address);
}

Abort Read(const v1::Abort& from) {
  return {.job = {from.job_id()},
          .generation = from.generation(),
          .reason = from.reason(),
          .grace_seconds = from.grace_seconds(),
          .park_seconds = from.park_seconds(),
          .kill_ranks = {from.kill_ranks().begin(), from.kill_ranks().end()},
          .next_master_bind_address = from.next_master_bind_address()};
}

void Fill(const Stop& from, v1::Stop* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_reason(from.reason);
}

Stop Read(const v1::Stop& from) {
  return {.job = {from.job_id()}, .generation = from.generation(), .reason = from.reason()};
}

void Fill(const Probe& from, v1::Probe* to) {
  to->set_probe_id(from.probe_id);
  to->set_node(from.node.value);
  to->set_address(from.address);
  to->set_port(from.port);
  to->set_timeout_ms(from.timeout_ms);
}

Probe Read(const v1::Probe& from) {
  return {.probe_id = from.probe_id(),
          .node = {from.node()},
          .address = from.address(),
          .port = from.port(),
          .timeout_ms = from.timeout_ms()};
}

void Fill(const InjectFault& from, v1::InjectFault* to) {
  to->set_request_id(from.request_id);
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  to->set_kind(from.kind);
  to->set_argument(from.argument);
}

InjectFault Read(const v1::InjectFault& from) {
  return {.request_id = from.request_id(),
          .job = {from.job_id()},
          .generation = from.generation(),
          .rank = from.rank(),
          .kind = from.kind(),
          .argument = from.argument()};
}

void Fill(const Release& from, v1::Release* to) { to->set_job_id(from.job.value); }

Release Read(const v1::Release& from) { return {.job = {from.job_id()}}; }

void Fill(const CheckpointCommitted& from, v1::CheckpointCommitted* to) {
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_output_dir(from.output_dir);
  Fill(from.checkpoint, to->mutable_checkpoint());
  for (const std::string& directory : from.prune) to->add_prune(directory);
  to->set_account(from.account);
}

CheckpointCommitted Read(const v1::CheckpointCommitted& from) {
  return {.job = {from.job_id()},
          .generation = from.generation(),
          .output_dir = from.output_dir(),
          .checkpoint = Read(from.checkpoint()),
          .prune = {from.prune().begin(), from.prune().end()},
          .account = from.account()};
}

void Fill(const ReadLog& from, v1::ReadLog* to) {
  to->set_request_id(from.request_id);
  to->set_job_id(from.job.value);
  to->set_generation(from.generation);
  to->set_rank(from.rank);
  to->set_offset(from.offset);
  to->set_limit_bytes(from.limit_bytes);
  to->set_output_dir(from.output_dir);
  to->set_account(from.account);
  to->set_metrics(from.metrics);
}

ReadLog Read(const v1::ReadLog& from) {
  return {.request_id = from.request_id(),
          .job = {from.job_id()},
          .generation = from.generation(),
          .rank = from.rank(),
          .offset = from.offset(),
          .limit_bytes = from.limit_bytes(),
          .output_dir = from.output_dir(),
          .account = from.account(),
          .metrics = from.metrics()};
}

void Fill(const ScrubCheckpoint& from, v1::ScrubCheckpoint* to) {
  to->set_scrub_id(from.scrub_id);
  to->set_job_id(from.job.value);
  to->set_output_dir(from.output_dir);
  Fill(from.checkpoint, to->mutable_checkpoint());
  to->set_max_bytes_per_second(from.max_bytes_per_second);
  to->set_at_once(from.at_once);
  to->set_account(from.account);
}

ScrubCheckpoint Read(const v1::ScrubCheckpoint& from) {
  return {.scrub_id = from.scrub_id(),
          .job = {from.job_id()},
          .output_dir = from.output_dir(),
          .checkpoint = Read(from.checkpoint()),
          .max_bytes_per_second = from.max_bytes_per_second(),
          .at_once = from.at_once(),
          .account = from.account()};
}

void Fill(const CancelScrub& from, v1::CancelScrub* to) { to->set_scrub_id(from.scrub_id); }

CancelScrub Read(const v1::CancelScrub& from) { return {.scrub_id = from.scrub_id()}; }

// --- the place of each message in its stream's envelope ---

v1::Prepared* PlaceOf(const Prepared&, v1::WorkerMessage* m) { return m->mutable_prepared(); }
v1::RankStarted* PlaceOf(const RankStarted&, v1::WorkerMessage* m) {
  return m->mutable_rank_started();
}
v1::RankExited* PlaceOf(const RankExited&, v1::WorkerMessage* m) {
  return m->mutable_rank_exited();
}
v1::Quiesced* PlaceOf(const Quiesced&, v1::WorkerMessage* m) { return m->mutable_quiesced(); }
v1::TrainerReport* PlaceOf(const TrainerReport&, v1::WorkerMessage* m) {
  return m->mutable_trainer_report();
}
v1::Progress* PlaceOf(const Progress&, v1::WorkerMessage* m) { return m->mutable_progress(); }
v1::ManifestWritten* PlaceOf(const ManifestWritten&, v1::WorkerMessage* m) {
  return m->mutable_manifest_written();
}
v1::LogChunk* PlaceOf(const LogChunk&, v1::WorkerMessage* m) { return m->mutable_log_chunk(); }
v1::Released* PlaceOf(const Released&, v1::WorkerMessage* m) { return m->mutable_released(); }
v1::ProbeResult* PlaceOf(const ProbeResult&, v1::WorkerMessage* m) {
  return m->mutable_probe_result();
}
v1::NodeNotice* PlaceOf(const NodeNotice&, v1::WorkerMessage* m) {
  return m->mutable_node_notice();
}
v1::FaultDone* PlaceOf(const FaultDone&, v1::WorkerMessage* m) { return m->mutable_fault_done(); }
v1::CheckpointScrubbed* PlaceOf(const CheckpointScrubbed&, v1::WorkerMessage* m) {
  return m->mutable_checkpoint_scrubbed();
}
v1::Heartbeat* PlaceOf(const Heartbeat&, v1::WorkerMessage* m) { return m->mutable_heartbeat(); }

void Fill(const Heartbeat&, v1::Heartbeat*) {}

v1::Welcome* PlaceOf(const Welcome&, v1::CoordinatorMessage* m) { return m->mutable_welcome(); }
v1::Prepare* PlaceOf(const Prepare&, v1::CoordinatorMessage* m) { return m->mutable_prepare(); }
v1::Launch* PlaceOf(const Launch&, v1::CoordinatorMessage* m) { return m->mutable_launch(); }
v1::Abort* PlaceOf(const Abort&, v1::CoordinatorMessage* m) { return m->mutable_abort(); }
v1::Release* PlaceOf(const Release&, v1::CoordinatorMessage* m) { return m->mutable_release(); }
v1::CheckpointCommitted* PlaceOf(const CheckpointCommitted&, v1::CoordinatorMessage* m) {
  return m->mutable_checkpoint_committed();
}
v1::ReadLog* PlaceOf(const ReadLog&, v1::CoordinatorMessage* m) { return m->mutable_read_log(); }
v1::Stop* PlaceOf(const Stop&, v1::CoordinatorMessage* m) { return m->mutable_stop(); }
v1::Probe* PlaceOf(const Probe&, v1::CoordinatorMessage* m) { return m->mutable_probe(); }
v1::InjectFault* PlaceOf(const InjectFault&, v1::CoordinatorMessage* m) {
  return m->mutable_inject_fault();
}
v1::ScrubCheckpoint* PlaceOf(const ScrubCheckpoint&, v1::CoordinatorMessage* m) {
  return m->mutable_scrub_checkpoint();
}
v1::CancelScrub* PlaceOf(const CancelScrub&, v1::CoordinatorMessage* m) {
  return m->mutable_cancel_scrub();
}
v1::Refused* PlaceOf(const Refused&, v1::CoordinatorMessage* m) { return m->mutable_refused(); }

// A message that has been read, as one of all kinds.
template <typename Any, typename Kind>
Result<Any> OneOf(Result<Kind> read) {
  if (!read.ok()) return read.status();
  return Any(std::move(*read));
}

template <typename Proto>
Result<CoordinatorMessage> ReadAboutJob(const Proto& from) {
  MUSTER_RETURN_IF_ERROR(CheckJobId(from.job_id()));
  return CoordinatorMessage(Read(from));
}

}  // namespace

v1::Hello ToProto(const Hello& from) {
  v1::Hello to;
  to.set_protocol_version(from.protocol_version);
  to.set_min_protocol_version(from.min_protocol_version);
  to.set_version(from.version);
  to.set_node(from.node.value);
  to.set_address(from.address);
  to.set_host_id(from.host_id);
  to.set_slots(from.slots);
  to.set_pid(from.pid);
  to.set_metrics_port(from.metrics_port);
  to.set_instance(from.instance);
  to.set_failure_domain(from.failure_domain);
  to.set_allows_faults(from.allows_faults);
  to.set_pilot(from.pilot);
  *to.mutable_inventory() = ToProto(from.inventory);
  to.set_directory_id(from.directory_id);
  to.set_container_id(from.container_id);
  to.set_epoch_met(from.epoch_met);
  for (const NamedVersions& row : from.versions) *to.add_versions() = ToProto(row);
  for (const std::string& line : from.report) to.add_report(ValidUtf8(line));
  for (const HostedGeneration& hosted : from.hosted) Fill(hosted, to.add_hosted());
  return to;
}

Result<Hello> FromProto(v1::Hello from) {
  if (!FollowsNameRule(from.node())) {
    return InvalidArgument("node name '" + from.node().substr(0, kMaxNameBytes) +
                           "' is refused: " + std::string(kNameRule));
  }
  const int oldest =
      from.min_protocol_version() > 0 ? from.min_protocol_version() : from.protocol_version();
  // Fields of another version may mean something else; the controller refuses it by its number.
  if (!CommonVersion(kProtocols, {.min = oldest, .max = from.protocol_version()})) {
    return Hello{.protocol_version = from.protocol_version(),
                 .min_protocol_version = oldest,
                 .version = CutText(from.version(), kMaxVersionBytes),
                 .node = {from.node()}};
  }
  MUSTER_RETURN_IF_ERROR(ApplyLimits(&from).WithContext("node " + from.node()));
  MUSTER_RETURN_IF_ERROR(CheckCounts(from));
  Hello to{.protocol_version = from.protocol_version(),
           .min_protocol_version = oldest,
           .version = from.version(),
           .node = {from.node()},
           .address = from.address(),
           .host_id = from.host_id(),
           .slots = from.slots(),
           .pid = from.pid(),
           .metrics_port = from.metrics_port(),
           .instance = from.instance(),
           .failure_domain = from.failure_domain(),
           .allows_faults = from.allows_faults(),
           .pilot = from.pilot(),
           .report = {from.report().begin(), from.report().end()},
           .inventory = FromProto(from.inventory()),
           .directory_id = from.directory_id(),
           .container_id = from.container_id(),
           .epoch_met = from.epoch_met()};
  for (const v1::VersionRange& row : from.versions())
    to.versions.push_back({row.key(), {row.min(), row.max()}});
  for (const v1::HostedGeneration& each : from.hosted()) {
    MUSTER_ASSIGN_OR_RETURN(HostedGeneration hosted, Read(each));
    to.hosted.push_back(std::move(hosted));
  }
  return to;
}

v1::WorkerMessage ToProto(const WorkerMessage& message) {
  v1::WorkerMessage out;
  std::visit([&out](const auto& m) { Fill(m, PlaceOf(m, &out)); }, message);
  return out;
}

Result<WorkerMessage> FromProto(v1::WorkerMessage m) {
  MUSTER_RETURN_IF_ERROR(ApplyLimits(&m));
  switch (m.body_case()) {
    case v1::WorkerMessage::kPrepared: return OneOf<WorkerMessage>(Read(m.prepared()));
    case v1::WorkerMessage::kRankStarted: return OneOf<WorkerMessage>(Read(m.rank_started()));
    case v1::WorkerMessage::kRankExited: return OneOf<WorkerMessage>(Read(m.rank_exited()));
    case v1::WorkerMessage::kQuiesced: return OneOf<WorkerMessage>(Read(m.quiesced()));
    case v1::WorkerMessage::kTrainerReport: return OneOf<WorkerMessage>(Read(m.trainer_report()));
    case v1::WorkerMessage::kProgress: return OneOf<WorkerMessage>(Read(m.progress()));
    case v1::WorkerMessage::kManifestWritten:
      return OneOf<WorkerMessage>(Read(m.manifest_written()));
    case v1::WorkerMessage::kLogChunk: return OneOf<WorkerMessage>(Read(m.log_chunk()));
    case v1::WorkerMessage::kReleased: return OneOf<WorkerMessage>(Read(m.released()));
    case v1::WorkerMessage::kHeartbeat: return WorkerMessage(Heartbeat{});
    case v1::WorkerMessage::kProbeResult: return OneOf<WorkerMessage>(Read(m.probe_result()));
    case v1::WorkerMessage::kNodeNotice: return OneOf<WorkerMessage>(Read(m.node_notice()));
    case v1::WorkerMessage::kFaultDone: return OneOf<WorkerMessage>(Read(m.fault_done()));
    case v1::WorkerMessage::kCheckpointScrubbed:
      return OneOf<WorkerMessage>(Read(m.checkpoint_scrubbed()));
    case v1::WorkerMessage::kHello: return InvalidArgument("a second Hello on one stream");
    case v1::WorkerMessage::BODY_NOT_SET: break;
  }
  return Unimplemented("worker message without a known body");
}

v1::CoordinatorMessage ToProto(const CoordinatorMessage& message) {
  v1::CoordinatorMessage out;
  std::visit([&out](const auto& m) { Fill(m, PlaceOf(m, &out)); }, message);
  return out;
}

Result<CoordinatorMessage> FromProto(const v1::CoordinatorMessage& m) {
  switch (m.body_case()) {
    case v1::CoordinatorMessage::kWelcome: return CoordinatorMessage(Read(m.welcome()));
    case v1::CoordinatorMessage::kRefused: return CoordinatorMessage(Read(m.refused()));
    case v1::CoordinatorMessage::kPrepare: return ReadAboutJob(m.prepare());
    case v1::CoordinatorMessage::kLaunch: return ReadAboutJob(m.launch());
    case v1::CoordinatorMessage::kAbort: return ReadAboutJob(m.abort());
    case v1::CoordinatorMessage::kRelease: return ReadAboutJob(m.release());
    case v1::CoordinatorMessage::kCheckpointCommitted:
      return ReadAboutJob(m.checkpoint_committed());
    case v1::CoordinatorMessage::kReadLog: return ReadAboutJob(m.read_log());
    case v1::CoordinatorMessage::kStop: return ReadAboutJob(m.stop());
    case v1::CoordinatorMessage::kProbe: return CoordinatorMessage(Read(m.probe()));
    case v1::CoordinatorMessage::kInjectFault:
      if (m.inject_fault().job_id().empty()) return CoordinatorMessage(Read(m.inject_fault()));
      return ReadAboutJob(m.inject_fault());
    case v1::CoordinatorMessage::kScrubCheckpoint: return ReadAboutJob(m.scrub_checkpoint());
    case v1::CoordinatorMessage::kCancelScrub: return CoordinatorMessage(Read(m.cancel_scrub()));
    case v1::CoordinatorMessage::BODY_NOT_SET: break;
  }
  return Unimplemented("coordinator message without a known body");
}

v1::CheckpointInfo ToProto(const CheckpointInfo& checkpoint) {
  v1::CheckpointInfo out;
  Fill(checkpoint, &out);
  return out;
}

v1::RankProgress ToProto(const RankProgress& progress) {
  v1::RankProgress out;
  Fill(progress, &out);
  return out;
}

}  // namespace muster
