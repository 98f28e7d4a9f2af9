#include <algorithm>
#include <cctype>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/text.h"
#include "common/base/version.h"
#include "coordinator/service/conversions.h"

namespace muster {
namespace {

constexpr std::size_t kMaxNameLength = 64;
constexpr int kMaxSlots = 4096;
// It is stored and shown; a worker sends no more.
constexpr int kMaxReportLines = 32;
constexpr std::size_t kMaxReportLineBytes = 400;

bool IsName(const std::string& text) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  return !text.empty() && text.size() <= kMaxNameLength && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), allowed);
}

template <typename Proto>
Status CheckRank(const Proto& message) {
  if (message.rank() >= 0 && message.rank() < kMaxSlots * kMaxSlots) return OkStatus();
  return InvalidArgument("rank " + std::to_string(message.rank()) + " is out of range");
}

ExitStatus FromProto(const v1::ExitStatus& exit) { return {exit.exit_code(), exit.signal()}; }

std::vector<std::string> BoundedReport(const v1::Hello& m) {
  std::vector<std::string> lines;
  for (int i = 0; i < std::min(m.report_size(), kMaxReportLines); ++i)
    lines.push_back(CutText(m.report(i), kMaxReportLineBytes));
  return lines;
}

ShardInfo FromProto(const v1::ShardInfo& shard) {
  return {shard.rank(), shard.file(), shard.bytes(), shard.checksum()};
}

Result<WorkerMessage> FromProto(const v1::Prepared& m) {
  Prepared prepared{JobId{m.job_id()}, m.generation(),  m.ok(),      m.error(),
                    m.retryable(),     m.master_port(), std::nullopt};
  if (m.has_cuda()) {
    const v1::CudaStack& cuda = m.cuda();
    prepared.cuda = CudaStack{cuda.plugin(), cuda.runtime(), cuda.driver(), cuda.nccl()};
  }
  return WorkerMessage(std::move(prepared));
}

RankStarted ConvertStarted(const v1::RankStarted& m) {
  return {JobId{m.job_id()}, m.generation(), m.rank(), m.pid()};
}

RankProgress ConvertRankProgress(const v1::RankProgress& m) {
  RankProgress progress{m.rank(),      m.step(),          m.phase(),        m.loss(),
                        m.grad_norm(), m.learning_rate(), m.step_seconds(), m.tokens_per_second(),
                        m.tokens(),    m.max_steps(),     m.rss_bytes()};
  progress.micro_batch = m.micro_batch();
  progress.stores = m.stores();
  for (const v1::CollectiveCounts& counts : m.collectives()) {
    progress.collectives.push_back(
        {counts.group(), counts.enqueued(), counts.started(), counts.completed(), counts.bytes()});
  }
  progress.busy_seconds = m.busy_seconds();
  progress.wait_seconds = m.wait_seconds();
  progress.steps_done = m.steps_done();
  progress.process_state = m.process_state();
  progress.cpu_seconds = m.cpu_seconds();
  progress.phase_seconds.assign(m.phase_seconds().begin(), m.phase_seconds().end());
  progress.snapshot_step = m.snapshot_step();
  progress.device_bytes = m.device_bytes();
  progress.device_capacity_bytes = m.device_capacity_bytes();
  return progress;
}

RankExited ConvertExited(const v1::RankExited& m) {
  RankExited exited{JobId{m.job_id()}, m.generation(),
                    m.rank(),          FromProto(m.exit()),
                    m.age_seconds(),   {m.log_tail().begin(), m.log_tail().end()},
                    m.node_stopped(),  m.ended(),
                    m.out_of_memory(), m.asked_to_stop()};
  if (m.has_last()) exited.last = ConvertRankProgress(m.last());
  exited.facts.assign(m.facts().begin(), m.facts().end());
  return exited;
}

Resumed ConvertResumed(const v1::Resumed& m) {
  Resumed resumed{m.step(), {}, m.from()};
  for (const v1::RejectedCheckpoint& rejected : m.rejected()) {
    resumed.rejected.push_back({rejected.directory(), rejected.reason()});
  }
  return resumed;
}

Result<TrainerReport> ConvertReport(const v1::TrainerReport& m) {
  MUSTER_RETURN_IF_ERROR(CheckRank(m));
  TrainerReport report{JobId{m.job_id()}, m.generation(), m.rank(), Formed{}};
  switch (m.body_case()) {
    case v1::TrainerReport::kFormed: return report;
    case v1::TrainerReport::kResumed: report.body = ConvertResumed(m.resumed()); return report;
    case v1::TrainerReport::kFirstStep:
      report.body = FirstStep{m.first_step().step()};
      return report;
    case v1::TrainerReport::kShardWritten: {
      const v1::ShardWritten& shard = m.shard_written();
      ShardWritten written{shard.step(), shard.directory(), FromProto(shard.shard())};
      if (shard.has_eval_loss()) written.eval_loss = shard.eval_loss();
      report.body = std::move(written);
      return report;
    }
    case v1::TrainerReport::kCheckpointFailed:
      report.body = CheckpointFailed{m.checkpoint_failed().step(), m.checkpoint_failed().reason()};
      return report;
    case v1::TrainerReport::kError:
      report.body = TrainerError{m.error().kind(), m.error().message(), m.error().step(),
                                 m.error().symptom()};
      return report;
    case v1::TrainerReport::kNote:
      report.body = TrainerNote{m.note().severity(), m.note().message()};
      return report;
    case v1::TrainerReport::kFinished:
      report.body = Finished{m.finished().step(), m.finished().model_dir()};
      return report;
    case v1::TrainerReport::kParked: report.body = Parked{m.parked().step()}; return report;
    case v1::TrainerReport::BODY_NOT_SET: break;
  }
  return InvalidArgument("trainer report without a known body");
}

Progress ConvertProgress(const v1::Progress& m) {
  Progress progress{JobId{m.job_id()}, m.generation(), {}};
  for (const v1::RankProgress& rank : m.ranks()) {
    progress.ranks.push_back(ConvertRankProgress(rank));
  }
  return progress;
}

Result<HostedGeneration> ConvertHosted(const v1::HostedGeneration& m) {
  HostedGeneration hosted{JobId{m.job_id()},
                          m.generation(),
                          m.prepared(),
                          m.master_port(),
                          m.launched(),
                          m.quiesced(),
                          {},
                          {},
                          {}};
  for (const v1::RankExited& exited : m.exited()) {
    MUSTER_RETURN_IF_ERROR(CheckRank(exited));
    hosted.exited.push_back(ConvertExited(exited));
  }
  for (const v1::RankStarted& started : m.started()) {
    MUSTER_RETURN_IF_ERROR(CheckRank(started));
    hosted.started.push_back(ConvertStarted(started));
  }
  for (const v1::TrainerReport& report : m.reports()) {
    MUSTER_ASSIGN_OR_RETURN(TrainerReport converted, ConvertReport(report));
    hosted.reports.push_back(std::move(converted));
  }
  hosted.parked_ranks.assign(m.parked_ranks().begin(), m.parked_ranks().end());
  hosted.standbys = m.standbys();
  return hosted;
}

v1::Launch ToProto(const Launch& m) {
  v1::Launch out;
  out.set_job_id(m.job_id.value);
  out.set_generation(m.generation);
  out.set_master_address(m.master_address);
  out.set_master_port(m.master_port);
  out.set_world_size(m.world_size);
  out.set_node_rank(m.node_rank);
  out.set_node_count(m.node_count);
  out.set_local_world_size(m.local_world_size);
  out.set_restart_count(m.restart_count);
  out.set_max_restarts(m.max_restarts);
  for (const CheckpointRecord& checkpoint : m.resume) *out.add_resume() = ToProto(checkpoint);
  out.mutable_buddy_ring()->Add(m.buddy_ring.begin(), m.buddy_ring.end());
  out.set_rendezvous_token(m.rendezvous_token);
  return out;
}

v1::Prepare ToProto(const Prepare& m) {
  v1::Prepare out;
  out.set_job_id(m.job_id.value);
  out.set_job_name(m.job_name);
  out.set_generation(m.generation);
  out.set_spec_yaml(m.spec_yaml);
  out.set_output_dir(m.output_dir);
  for (const RankPlacement& rank : m.ranks) {
    v1::RankPlacement& placement = *out.add_ranks();
    placement.set_rank(rank.rank);
    placement.set_local_rank(rank.local_rank);
  }
  out.set_hosts_master(m.hosts_master);
  out.set_master_bind_address(m.master_bind_address);
  out.set_spare(m.spare);
  out.set_standbys(m.standbys);
  return out;
}

v1::Welcome ToProto(const Welcome& m) {
  v1::Welcome out;
  out.set_protocol_version(m.protocol_version);
  out.set_cluster(m.cluster);
  out.set_heartbeat_ms(m.heartbeat_ms);
  out.set_progress_ms(m.progress_ms);
  out.set_epoch(m.epoch);
  return out;
}

v1::Abort ToProto(const Abort& m) {
  v1::Abort out;
  out.set_job_id(m.job_id.value);
  out.set_generation(m.generation);
  out.set_reason(m.reason);
  out.set_grace_seconds(m.grace_seconds);
  out.set_park_seconds(m.park_seconds);
  for (const int rank : m.kill_ranks) out.add_kill_ranks(rank);
  return out;
}

v1::Stop ToProto(const Stop& m) {
  v1::Stop out;
  out.set_job_id(m.job_id.value);
  out.set_generation(m.generation);
  out.set_reason(m.reason);
  return out;
}

v1::Probe ToProto(const Probe& m) {
  v1::Probe out;
  out.set_probe_id(m.probe_id);
  out.set_node(m.node.value);
  out.set_address(m.address);
  out.set_port(m.port);
  out.set_timeout_ms(m.timeout_ms);
  return out;
}

v1::InjectFault ToProto(const InjectFault& m) {
  v1::InjectFault out;
  out.set_request_id(m.request_id);
  out.set_job_id(m.job_id.value);
  out.set_generation(m.generation);
  out.set_rank(m.rank);
  out.set_kind(m.kind);
  out.set_argument(m.argument);
  return out;
}

v1::ScrubCheckpoint ToProto(const ScrubCheckpoint& m) {
  v1::ScrubCheckpoint out;
  out.set_scrub_id(m.scrub_id);
  out.set_job_id(m.job_id.value);
  out.set_output_dir(m.output_dir);
  *out.mutable_checkpoint() = ToProto(m.checkpoint);
  out.set_max_bytes_per_second(m.max_bytes_per_second);
  return out;
}

Result<WorkerMessage> FromProto(const v1::CheckpointScrubbed& m) {
  if (m.outcome() < v1::SCRUB_OUTCOME_WHOLE || m.outcome() > v1::SCRUB_OUTCOME_CALLED_OFF) {
    return InvalidArgument("the outcome of a scrub is not known");
  }
  return WorkerMessage(CheckpointScrubbed{m.scrub_id(), JobId{m.job_id()}, m.directory(),
                                          static_cast<ScrubOutcome>(m.outcome()), m.file(),
                                          m.detail()});
}

v1::CheckpointCommitted ToProto(const CheckpointCommitted& m) {
  v1::CheckpointCommitted out;
  out.set_job_id(m.job_id.value);
  out.set_generation(m.generation);
  out.set_output_dir(m.output_dir);
  *out.mutable_checkpoint() = ToProto(m.checkpoint);
  for (const std::string& directory : m.prune) out.add_prune(directory);
  return out;
}

}  // namespace

Result<Hello> FromProto(const v1::Hello& m) {
  if (!IsName(m.node())) {
    return InvalidArgument("node name '" + m.node().substr(0, kMaxNameLength) +
                           "': use 1 to 64 letters, digits, '-', '_' and '.'");
  }
  if (m.slots() < 0 || m.slots() > kMaxSlots) {
    return InvalidArgument("node " + m.node() + " offers " + std::to_string(m.slots()) +
                           " slots; 0 to " + std::to_string(kMaxSlots) + " are possible");
  }
  Hello hello{m.protocol_version(),
              m.version(),
              NodeName{m.node()},
              m.address(),
              m.host_id(),
              m.slots(),
              m.pid(),
              m.metrics_port(),
              m.instance(),
              m.failure_domain(),
              m.allows_faults(),
              {}};
  hello.report = BoundedReport(m);
  if (m.has_gpus()) hello.gpus = std::max(m.gpus(), 0);
  if (!m.pilot().empty()) {
    if (!IsName(m.pilot()))
      return InvalidArgument("node " + m.node() + " names a pilot job that cannot be one");
    hello.pilot = m.pilot();
  }
  // Another version's state may mean something else; the controller refuses it by its number.
  if (hello.protocol_version != kProtocolVersion) return hello;
  for (const v1::HostedGeneration& hosted : m.hosted()) {
    MUSTER_ASSIGN_OR_RETURN(HostedGeneration converted, ConvertHosted(hosted));
    hello.hosted.push_back(std::move(converted));
  }
  return hello;
}

Result<WorkerMessage> FromProto(const v1::WorkerMessage& m) {
  switch (m.body_case()) {
    case v1::WorkerMessage::kPrepared: return FromProto(m.prepared());
    case v1::WorkerMessage::kRankStarted:
      MUSTER_RETURN_IF_ERROR(CheckRank(m.rank_started()));
      return WorkerMessage(ConvertStarted(m.rank_started()));
    case v1::WorkerMessage::kRankExited:
      MUSTER_RETURN_IF_ERROR(CheckRank(m.rank_exited()));
      return WorkerMessage(ConvertExited(m.rank_exited()));
    case v1::WorkerMessage::kQuiesced: {
      const v1::Quiesced& q = m.quiesced();
      return WorkerMessage(Quiesced{JobId{q.job_id()},
                                    q.generation(),
                                    {q.unkillable_pids().begin(), q.unkillable_pids().end()},
                                    {q.parked_ranks().begin(), q.parked_ranks().end()},
                                    q.standbys()});
    }
    case v1::WorkerMessage::kTrainerReport: {
      MUSTER_ASSIGN_OR_RETURN(TrainerReport report, ConvertReport(m.trainer_report()));
      return WorkerMessage(std::move(report));
    }
    case v1::WorkerMessage::kProgress:
      for (const v1::RankProgress& rank : m.progress().ranks()) {
        MUSTER_RETURN_IF_ERROR(CheckRank(rank));
      }
      return WorkerMessage(ConvertProgress(m.progress()));
    case v1::WorkerMessage::kManifestWritten: {
      const v1::ManifestWritten& w = m.manifest_written();
      return WorkerMessage(ManifestWritten{JobId{w.job_id()}, w.directory(), w.ok(), w.error()});
    }
    case v1::WorkerMessage::kHeartbeat: return WorkerMessage(Heartbeat{});
    case v1::WorkerMessage::kReleased: return WorkerMessage(Released{JobId{m.released().job_id()}});
    case v1::WorkerMessage::kHello: return InvalidArgument("a second Hello on one stream");
    case v1::WorkerMessage::kProbeResult: {
      const v1::ProbeResult& r = m.probe_result();
      if (r.outcome() < v1::PROBE_OUTCOME_ANSWERED || r.outcome() > v1::PROBE_OUTCOME_SILENT) {
        return InvalidArgument("probe result without a known outcome");
      }
      return WorkerMessage(
          ProbeResult{r.probe_id(), NodeName{r.node()}, static_cast<ProbeOutcome>(r.outcome())});
    }
    case v1::WorkerMessage::kNodeNotice: {
      const v1::NodeNotice& n = m.node_notice();
      if (n.kind() < v1::NODE_NOTICE_KIND_DRAIN || n.kind() > v1::NODE_NOTICE_KIND_CLEAR) {
        return InvalidArgument("node notice of an unknown kind");
      }
      return WorkerMessage(NodeNotice{static_cast<NodeNoticeKind>(n.kind()),
                                      n.detail(),
                                      n.deadline_seconds(),
                                      {n.devices().begin(), n.devices().end()},
                                      n.fatal(),
                                      {n.standing().begin(), n.standing().end()}});
    }
    case v1::WorkerMessage::kFaultDone:
      return WorkerMessage(FaultDone{m.fault_done().request_id(), m.fault_done().error()});
    case v1::WorkerMessage::kCheckpointScrubbed: return FromProto(m.checkpoint_scrubbed());
    case v1::WorkerMessage::kLogChunk:
    case v1::WorkerMessage::BODY_NOT_SET: break;
  }
  return InvalidArgument("worker message without a known body");
}

v1::CoordinatorMessage ToProto(const CoordinatorMessage& message) {
  v1::CoordinatorMessage out;
  std::visit(
      [&out](const auto& m) {
        using T = std::decay_t<decltype(m)>;
        if constexpr (std::is_same_v<T, Welcome>) {
          *out.mutable_welcome() = ToProto(m);
        } else if constexpr (std::is_same_v<T, Prepare>) {
          *out.mutable_prepare() = ToProto(m);
        } else if constexpr (std::is_same_v<T, Launch>) {
          *out.mutable_launch() = ToProto(m);
        } else if constexpr (std::is_same_v<T, Abort>) {
          *out.mutable_abort() = ToProto(m);
        } else if constexpr (std::is_same_v<T, Release>) {
          out.mutable_release()->set_job_id(m.job_id.value);
        } else if constexpr (std::is_same_v<T, Stop>) {
          *out.mutable_stop() = ToProto(m);
        } else if constexpr (std::is_same_v<T, Probe>) {
          *out.mutable_probe() = ToProto(m);
        } else if constexpr (std::is_same_v<T, InjectFault>) {
          *out.mutable_inject_fault() = ToProto(m);
        } else if constexpr (std::is_same_v<T, ScrubCheckpoint>) {
          *out.mutable_scrub_checkpoint() = ToProto(m);
        } else if constexpr (std::is_same_v<T, CancelScrub>) {
          out.mutable_cancel_scrub()->set_scrub_id(m.scrub_id);
        } else {
          static_assert(std::is_same_v<T, CheckpointCommitted>);
          *out.mutable_checkpoint_committed() = ToProto(m);
        }
      },
      message);
  return out;
}

}  // namespace muster
