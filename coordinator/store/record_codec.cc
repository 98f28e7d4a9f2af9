#include "coordinator/store/record_codec.h"

#include <stdexcept>
#include <string>

#include "common/base/json.h"

namespace muster {

using Json = nlohmann::json;

// The functions that nlohmann finds by argument-dependent lookup: one pair per type.

template <typename Tag>
void to_json(Json& json, const StringId<Tag>& id) {
  json = id.value;
}
template <typename Tag>
void from_json(const Json& json, StringId<Tag>& id) {
  id.value = json.get<std::string>();
}

namespace {

template <typename Enum>
Enum EnumFromName(const Json& json, int first, int count) {
  const std::string& name = json.get_ref<const std::string&>();
  for (int i = first; i < first + count; ++i) {
    if (Name(static_cast<Enum>(i)) == name) return static_cast<Enum>(i);
  }
  throw std::invalid_argument("unknown word '" + name + "'");
}

}  // namespace

#define MUSTER_JSON_ENUM(Enum, first, count)                                \
  void to_json(Json& json, Enum value) { json = std::string(Name(value)); } \
  void from_json(const Json& json, Enum& value) { value = EnumFromName<Enum>(json, first, count); }

MUSTER_JSON_ENUM(JobState, 1, kJobStateCount)
MUSTER_JSON_ENUM(AttemptState, 1, kAttemptStateCount)
MUSTER_JSON_ENUM(NodeState, 1, kNodeStateCount)
MUSTER_JSON_ENUM(RankState, 1, kRankStateCount)
MUSTER_JSON_ENUM(CheckpointState, 1, kCheckpointStateCount)
MUSTER_JSON_ENUM(CauseKind, 0, kCauseKindCount)
MUSTER_JSON_ENUM(StopKind, 0, kStopKindCount)
MUSTER_JSON_ENUM(Tier, 0, kTierCount)
MUSTER_JSON_ENUM(Severity, 0, kSeverityCount)
MUSTER_JSON_ENUM(DrainCause, 0, kDrainCauseCount)
MUSTER_JSON_ENUM(TimeState, 0, kTimeStateCount)

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TimeUse, state, training, ranks)

// By their names, and only what is not zero.
void to_json(Json& json, const GoodputUsage& usage) {
  json = {{"until_unix_ms", usage.until_unix_ms}, {"doing", usage.doing}};
  for (int i = 0; i < kTimeStateCount; ++i) {
    const auto state = static_cast<TimeState>(i);
    const std::int64_t micros = Figure(usage.micros, state);
    if (micros != 0) json[std::string(Name(state))] = micros;
  }
}
void from_json(const Json& json, GoodputUsage& usage) {
  usage.until_unix_ms = json.value("until_unix_ms", std::int64_t{0});
  usage.doing = json.value("doing", TimeUse{});
  for (int i = 0; i < kTimeStateCount; ++i) {
    const auto state = static_cast<TimeState>(i);
    Figure(usage.micros, state) = json.value(std::string(Name(state)), std::int64_t{0});
  }
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessExit, exit_code, signal)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ShardInfo, rank, file, bytes, checksum)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CheckpointRecord, job, step, generation, directory,
                                                world_size, shards, committed_unix_ms, state,
                                                manifest_written, refused, verified_unix_ms,
                                                evaluated, eval_loss)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankEnd, exit, node_stopped, ended, out_of_memory,
                                                asked_to_stop)

// The fields of `end` lie beside the others.
void to_json(Json& json, const RankRecord& rank) {
  json = rank.end;
  json.update({{"rank", rank.rank},
               {"local_rank", rank.local_rank},
               {"node_rank", rank.node_rank},
               {"node", rank.node},
               {"pid", rank.pid},
               {"state", rank.state}});
}
void from_json(const Json& json, RankRecord& rank) {
  const RankRecord unset;
  rank = {.rank = json.value("rank", unset.rank),
          .local_rank = json.value("local_rank", unset.local_rank),
          .node_rank = json.value("node_rank", unset.node_rank),
          .node = json.value("node", unset.node),
          .pid = json.value("pid", unset.pid),
          .state = json.value("state", unset.state),
          .end = json.get<RankEnd>()};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(StageSeconds, detect, abort, reform, load,
                                                first_step)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(CauseCard, what, step, phase, micro_batch,
                                                last_collective, facts, advice)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(AttemptRecord, job, generation, state,
                                                started_unix_ms, ended_unix_ms, nodes, spares,
                                                node_devices, spare_devices, ranks, tier,
                                                master_address, master_port, rendezvous_token,
                                                cause_kind, retryable, cause, failed_rank,
                                                failed_node, card, resumed_step, resumed_from,
                                                last_step, lost_steps, seconds, notes, log_tail)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PromiseRecord, start_unix_ms, nodes, devices)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ReclaimRecord, claimant, generation, gives_up,
                                                by_unix_ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    JobRecord, id, name, key, spec_yaml, output_dir, priority, submit_order, world_size, state,
    reason, stop, generation, restarts, attempts_without_progress, step, best_step, committed_step,
    max_steps, loss, loss_at_start, tokens, submitted_unix_ms, started_unix_ms, ended_unix_ms,
    progress_unix_ms, pending_release, scrub_trouble, stop_by_unix_ms, suspended_unix_ms,
    suspended_ms, checkpoint_seconds, queue, priority_class, held, hold_reason, begin_unix_ms,
    time_limit_seconds, promise, reclaim, victim_unix_ms, usage)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(LeakedSlot, job, pid, devices)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(BrokenDevice, id, reason)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Device, id, kind, memory_bytes, numa_node,
                                                link_domain, fault, fake, shared)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TopologyPath, block, rack, switch_name)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeInventory, devices, cpus, memory_bytes, labels,
                                                topology)

void to_json(Json& json, const NoticeRecord& notice) {
  json = {{"kind", notice.kind}, {"detail", notice.detail}};
}
// Earlier versions stored the text.
void from_json(const Json& json, NoticeRecord& notice) {
  if (!json.is_string()) {
    notice = {.kind = json.value("kind", ""), .detail = json.value("detail", "")};
    return;
  }
  const std::string& text = json.get_ref<const std::string&>();
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos)
    notice.detail = text;
  else
    notice = {.kind = text.substr(0, colon), .detail = text.substr(colon + 2)};
}

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(NodeRecord, name, state, reason, address, host_id,
                                                slots, inventory, broken_devices, leaked, pid,
                                                version, metrics_port, instance, last_seen_unix_ms,
                                                failure_domain, allows_faults, drain_reason,
                                                drain_cause, drain_by_unix_ms, notices, pilot,
                                                report, unused, directory_id, container_id)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ArchivedJob, id, state, submit_order, ended_unix_ms,
                                                key_print, spec_print)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QueuesRecord, version, yaml)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QueueUsageRecord, queue, usage)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(UsedMicros, productive, lost)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(QueueDayRecord, queue, day, gpus, slots)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EventRecord, seq, unix_ms, job, generation, kind,
                                                severity, message)

namespace {

template <typename T>
std::string Dump(const T& record) {
  return Json(record).dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A number that is not finite is written as null.
void EraseNulls(Json& json) {
  for (auto it = json.begin(); it != json.end();) {
    if (it->is_structured()) EraseNulls(*it);
    it = it->is_null() ? json.erase(it) : std::next(it);
  }
}

// Fields whose default is not what a record has that was written before them.
template <typename T>
void FillOlder(Json&) {}
template <>
void FillOlder<JobRecord>(Json& json) {
  json.emplace("time_limit_seconds", kTimeLimitOfJobFile);
}

}  // namespace

std::string Encode(const JobRecord& record) { return Dump(record); }
std::string Encode(const AttemptRecord& record) { return Dump(record); }
std::string Encode(const CheckpointRecord& record) { return Dump(record); }
std::string Encode(const NodeRecord& record) { return Dump(record); }
std::string Encode(const EventRecord& record) { return Dump(record); }
std::string Encode(const ArchivedJob& job) { return Dump(job); }
std::string Encode(const GoodputUsage& usage) { return Dump(usage); }
std::string Encode(const QueuesRecord& queues) { return Dump(queues); }
std::string Encode(const QueueUsageRecord& usage) { return Dump(usage); }
std::string Encode(const QueueDayRecord& record) { return Dump(record); }

std::string EncodeField(std::string_view name, std::string_view value) {
  const std::string object = Dump(Json{{std::string(name), std::string(value)}});
  return object.substr(1, object.size() - 2);
}

template <typename T>
Result<T> Decode(std::string_view text) {
  try {
    Json json = Json::parse(text);
    if (!json.is_object()) return DataLoss("a record is not a JSON object");
    EraseNulls(json);
    FillOlder<T>(json);
    return json.get<T>();
  } catch (const std::exception& error) {
    return DataLoss(std::string("a record cannot be read: ") + error.what());
  }
}

template Result<JobRecord> Decode<JobRecord>(std::string_view);
template Result<AttemptRecord> Decode<AttemptRecord>(std::string_view);
template Result<CheckpointRecord> Decode<CheckpointRecord>(std::string_view);
template Result<NodeRecord> Decode<NodeRecord>(std::string_view);
template Result<EventRecord> Decode<EventRecord>(std::string_view);
template Result<ArchivedJob> Decode<ArchivedJob>(std::string_view);
template Result<GoodputUsage> Decode<GoodputUsage>(std::string_view);
template Result<QueuesRecord> Decode<QueuesRecord>(std::string_view);
template Result<QueueUsageRecord> Decode<QueueUsageRecord>(std::string_view);
template Result<QueueDayRecord> Decode<QueueDayRecord>(std::string_view);

}  // namespace muster
