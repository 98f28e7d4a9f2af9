#include "coordinator/store/record_codec.h"

#include <boost/describe.hpp>
#include <boost/mp11/algorithm.hpp>
#include <charconv>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/text.h"

namespace muster {

using Json = nlohmann::json;

// --- the fields of each type, in the order in which they are written ---

BOOST_DESCRIBE_STRUCT(TimeUse, (), (state, training, ranks));
// Beside these, the times that are not zero, by the names of their states.
BOOST_DESCRIBE_STRUCT(GoodputUsage, (), (until_unix_ms, doing));
BOOST_DESCRIBE_STRUCT(ProcessExit, (), (exit_code, signal));
BOOST_DESCRIBE_STRUCT(ShardInfo, (), (rank, file, bytes, checksum));
BOOST_DESCRIBE_STRUCT(CheckpointRecord, (),
                      (job, step, generation, directory, world_size, shards, committed_unix_ms,
                       state, manifest_written, refused, verified_unix_ms, evaluated, eval_loss));
BOOST_DESCRIBE_STRUCT(RankEnd, (), (exit, node_stopped, ended, out_of_memory, asked_to_stop));
// The fields of `end` lie beside these.
BOOST_DESCRIBE_STRUCT(RankRecord, (), (rank, local_rank, node_rank, node, pid, state));
BOOST_DESCRIBE_STRUCT(StageSeconds, (), (detect, abort, reform, load, first_step));
BOOST_DESCRIBE_STRUCT(CauseCard, (),
                      (what, step, phase, micro_batch, last_collective, facts, advice));
BOOST_DESCRIBE_STRUCT(AttemptRecord, (),
                      (job, generation, state, started_unix_ms, ended_unix_ms, nodes, spares, lent,
                       node_devices, spare_devices, ranks, tier, master_address, master_port,
                       rendezvous_token, cause_kind, retryable, cause, failed_rank, failed_node,
                       card, resumed_step, resumed_from, last_step, lost_steps, seconds, notes,
                       log_tail));
BOOST_DESCRIBE_STRUCT(PromiseRecord, (), (start_unix_ms, nodes, devices));
BOOST_DESCRIBE_STRUCT(ReclaimRecord, (), (claimant, generation, gives_up, by_unix_ms));
BOOST_DESCRIBE_STRUCT(JobRecord, (),
                      (id, name, owner, submitter, key, spec_yaml, output_dir, priority,
                       submit_order, world_size, state, reason, stop, generation, next_generation,
                       restarts, attempts_without_progress, step, best_step, committed_step,
                       max_steps, loss, loss_at_start, tokens, submitted_unix_ms, started_unix_ms,
                       ended_unix_ms, progress_unix_ms, pending_release, scrub_trouble,
                       stop_by_unix_ms, suspended_unix_ms, suspended_ms, checkpoint_seconds, queue,
                       priority_class, held, hold_reason, begin_unix_ms, time_limit_seconds,
                       promise, reclaim, victim_unix_ms, usage));
BOOST_DESCRIBE_STRUCT(LeakedSlot, (), (job, pid, devices));
BOOST_DESCRIBE_STRUCT(BrokenDevice, (), (id, reason));
BOOST_DESCRIBE_STRUCT(Device, (),
                      (id, kind, memory_bytes, numa_node, link_domain, fault, fake, shared));
BOOST_DESCRIBE_STRUCT(TopologyPath, (), (block, rack, switch_name));
BOOST_DESCRIBE_STRUCT(NodeInventory, (), (devices, cpus, memory_bytes, labels, topology));
BOOST_DESCRIBE_STRUCT(NodeRecord, (),
                      (name, state, reason, address, host_id, slots, inventory, broken_devices,
                       leaked, pid, version, metrics_port, instance, last_seen_unix_ms,
                       failure_domain, allows_faults, drain_reason, drain_cause, drain_by_unix_ms,
                       notices, pilot, report, unused, directory_id, container_id));
BOOST_DESCRIBE_STRUCT(ArchivedJob, (),
                      (id, state, submit_order, ended_unix_ms, key_print, spec_print));
// The fields of `job` lie beside these.
BOOST_DESCRIBE_STRUCT(ArchiveEntry, (), (name, output_dir));
BOOST_DESCRIBE_STRUCT(QueuesRecord, (), (version, yaml));
BOOST_DESCRIBE_STRUCT(UsersRecord, (), (version, yaml));
BOOST_DESCRIBE_STRUCT(SecretName, (), (owner, queue, name));
BOOST_DESCRIBE_STRUCT(SecretRecord, (),
                      (secret, key_id, own_key, value, updated_unix_ms, updated_by));
BOOST_DESCRIBE_STRUCT(QueueUsageRecord, (), (queue, usage));
BOOST_DESCRIBE_STRUCT(UsedMicros, (), (productive, lost));
BOOST_DESCRIBE_STRUCT(QueueDayRecord, (), (queue, day, gpus, slots, user));
BOOST_DESCRIBE_STRUCT(EventRecord, (), (seq, unix_ms, job, generation, kind, severity, message));
BOOST_DESCRIBE_STRUCT(NoticeRecord, (), (kind, detail, in_use));

namespace {

// What a field has that is missing, so a field that has it is not written. Values may be added to
// a struct, but no default here may change.
template <typename T>
const T& Unset() {
  static const T unset{};
  return unset;
}
template <>
const JobRecord& Unset() {
  static const JobRecord unset = [] {
    JobRecord record;
    record.time_limit_seconds = kTimeLimitOfJobFile;
    return record;
  }();
  return unset;
}

// Values of an enum: the first one, and how many.
template <typename Enum>
constexpr std::pair<int, int> kValues;
template <>
constexpr std::pair<int, int> kValues<JobState>{1, kJobStateCount};
template <>
constexpr std::pair<int, int> kValues<AttemptState>{1, kAttemptStateCount};
template <>
constexpr std::pair<int, int> kValues<NodeState>{1, kNodeStateCount};
template <>
constexpr std::pair<int, int> kValues<RankState>{1, kRankStateCount};
template <>
constexpr std::pair<int, int> kValues<CheckpointState>{1, kCheckpointStateCount};
template <>
constexpr std::pair<int, int> kValues<CauseKind>{0, kCauseKindCount};
template <>
constexpr std::pair<int, int> kValues<StopKind>{0, kStopKindCount};
template <>
constexpr std::pair<int, int> kValues<Tier>{0, kTierCount};
template <>
constexpr std::pair<int, int> kValues<Severity>{0, kSeverityCount};
template <>
constexpr std::pair<int, int> kValues<DrainCause>{0, kDrainCauseCount};
template <>
constexpr std::pair<int, int> kValues<TimeState>{0, kTimeStateCount};

template <typename T>
constexpr bool kIsId = false;
template <typename Tag>
constexpr bool kIsId<StringId<Tag>> = true;
template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

// fn(name, pointer to member) of each field.
template <typename T, typename Fn>
void ForEachField(Fn fn) {
  using Fields = boost::describe::describe_members<T, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Fields>([&](auto field) { fn(field.name, field.pointer); });
}

// --- writing ---

// JSON is text of Unicode characters: anything else becomes U+FFFD.
void WriteText(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  const std::size_t begin = out.size();
  out += '"';
  bool ascii = true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    ascii = ascii && byte < 0x80;
    if (byte >= 0x20 && c != '"' && c != '\\') {
      out += c;
    } else if (byte >= 0x20) {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  out += '"';
  if (!ascii) out.replace(begin, std::string::npos, ValidUtf8(std::string_view(out).substr(begin)));
}

template <typename T>
void WriteNumber(std::string& out, T value) {
  char digits[32];
  const auto end = std::to_chars(std::begin(digits), std::end(digits), value).ptr;
  out.append(digits, end);
}

template <typename T>
void WriteFields(std::string& out, const T& record);
void WriteFields(std::string& out, const RankRecord& record);
void WriteFields(std::string& out, const ArchiveEntry& entry);
void WriteFields(std::string& out, const GoodputUsage& usage);
void WriteFields(std::string& out, const std::map<std::string, std::string>& texts);

template <typename T>
void Write(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    WriteNumber(out, value);
  } else if constexpr (std::is_floating_point_v<T>) {
    if (std::isfinite(value))
      WriteNumber(out, value);
    else
      out += "null";
  } else if constexpr (std::is_enum_v<T>) {
    WriteText(out, Name(value));
  } else if constexpr (std::is_same_v<T, std::string>) {
    WriteText(out, value);
  } else if constexpr (kIsId<T>) {
    WriteText(out, value.value);
  } else if constexpr (kIsList<T>) {
    out += '[';
    for (const auto& item : value) {
      if (&item != value.data()) out += ',';
      Write(out, item);
    }
    out += ']';
  } else {
    out += '{';
    WriteFields(out, value);
    out += '}';
  }
}

// After a comma unless it is the first of its object.
template <typename T>
void WriteField(std::string& out, std::string_view name, const T& value) {
  if (!out.empty() && out.back() != '{') out += ',';
  WriteText(out, name);
  out += ':';
  Write(out, value);
}

template <typename T>
void WriteDescribed(std::string& out, const T& record) {
  ForEachField<T>([&](const char* name, auto field) {
    if (!(record.*field == Unset<T>().*field)) WriteField(out, name, record.*field);
  });
}
template <typename T>
void WriteFields(std::string& out, const T& record) {
  WriteDescribed(out, record);
}
void WriteFields(std::string& out, const RankRecord& record) {
  WriteDescribed(out, record);
  WriteDescribed(out, record.end);
}
void WriteFields(std::string& out, const ArchiveEntry& entry) {
  WriteDescribed(out, entry.job);
  WriteDescribed(out, entry);
}
void WriteFields(std::string& out, const GoodputUsage& usage) {
  WriteDescribed(out, usage);
  for (int i = 0; i < kTimeStateCount; ++i) {
    const auto state = static_cast<TimeState>(i);
    const std::int64_t micros = Figure(usage.micros, state);
    if (micros != 0) WriteField(out, Name(state), micros);
  }
}
void WriteFields(std::string& out, const std::map<std::string, std::string>& texts) {
  for (const auto& [name, value] : texts) WriteField(out, name, value);
}

// --- reading ---

template <typename T>
void ReadFields(const Json& json, T& record);
void ReadFields(const Json& json, RankRecord& record);
void ReadFields(const Json& json, ArchiveEntry& entry);
void ReadFields(const Json& json, GoodputUsage& usage);
void ReadFields(const Json& json, NoticeRecord& notice);
void ReadFields(const Json& json, std::map<std::string, std::string>& texts);

template <typename T>
void Read(const Json& json, T& value) {
  if constexpr (std::is_enum_v<T>) {
    const std::string& name = json.get_ref<const std::string&>();
    for (int i = kValues<T>.first; i < kValues<T>.first + kValues<T>.second; ++i) {
      value = static_cast<T>(i);
      if (Name(value) == name) return;
    }
    throw std::invalid_argument("unknown word '" + name + "'");
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    json.get_to(value);
  } else if constexpr (kIsId<T>) {
    json.get_to(value.value);
  } else if constexpr (kIsList<T>) {
    for (const Json& item : json.get_ref<const Json::array_t&>()) Read(item, value.emplace_back());
  } else {
    ReadFields(json, value);
  }
}

// A number that was not finite is null.
template <typename T>
void ReadField(const Json& json, std::string_view name, T& value) {
  const auto& object = json.get_ref<const Json::object_t&>();
  const auto field = object.find(name);
  if (field != object.end() && !field->second.is_null()) Read(field->second, value);
}

template <typename T>
void ReadDescribed(const Json& json, T& record) {
  record = Unset<T>();
  ForEachField<T>([&](const char* name, auto field) { ReadField(json, name, record.*field); });
}
template <typename T>
void ReadFields(const Json& json, T& record) {
  ReadDescribed(json, record);
}
void ReadFields(const Json& json, RankRecord& record) {
  ReadDescribed(json, record);
  ReadDescribed(json, record.end);
}
void ReadFields(const Json& json, ArchiveEntry& entry) {
  ReadDescribed(json, entry);
  ReadDescribed(json, entry.job);
}
void ReadFields(const Json& json, GoodputUsage& usage) {
  ReadDescribed(json, usage);
  for (int i = 0; i < kTimeStateCount; ++i) {
    const auto state = static_cast<TimeState>(i);
    ReadField(json, Name(state), Figure(usage.micros, state));
  }
}
// Earlier versions stored the text.
void ReadFields(const Json& json, NoticeRecord& notice) {
  if (!json.is_string()) return ReadDescribed(json, notice);
  const std::string& text = json.get_ref<const std::string&>();
  const std::size_t colon = text.find(": ");
  if (colon == std::string::npos)
    notice = {.kind = "", .detail = text};
  else
    notice = {.kind = text.substr(0, colon), .detail = text.substr(colon + 2)};
}
void ReadFields(const Json& json, std::map<std::string, std::string>& texts) { json.get_to(texts); }

template <typename T>
std::string Encoded(const T& record) {
  std::string text;
  text.reserve(512);
  Write(text, record);
  return text;
}

}  // namespace

std::string Encode(const JobRecord& record) { return Encoded(record); }
std::string Encode(const AttemptRecord& record) { return Encoded(record); }
std::string Encode(const CheckpointRecord& record) { return Encoded(record); }
std::string Encode(const NodeRecord& record) { return Encoded(record); }
std::string Encode(const EventRecord& record) { return Encoded(record); }
std::string Encode(const ArchivedJob& job) { return Encoded(job); }
std::string Encode(const ArchiveEntry& entry) { return Encoded(entry); }
std::string Encode(const GoodputUsage& usage) { return Encoded(usage); }
std::string Encode(const QueuesRecord& queues) { return Encoded(queues); }
std::string Encode(const UsersRecord& users) { return Encoded(users); }
std::string Encode(const SecretRecord& secret) { return Encoded(secret); }
std::string Encode(const QueueUsageRecord& usage) { return Encoded(usage); }
std::string Encode(const QueueDayRecord& record) { return Encoded(record); }

std::string EncodeField(std::string_view name, std::string_view value) {
  std::string field;
  WriteField(field, name, std::string(value));
  return field;
}

template <typename T>
Result<T> Decode(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (!json.is_object()) return DataLoss("a record is not a JSON object");
    T record;
    ReadFields(json, record);
    return record;
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
template Result<ArchiveEntry> Decode<ArchiveEntry>(std::string_view);
template Result<GoodputUsage> Decode<GoodputUsage>(std::string_view);
template Result<QueuesRecord> Decode<QueuesRecord>(std::string_view);
template Result<UsersRecord> Decode<UsersRecord>(std::string_view);
template Result<SecretRecord> Decode<SecretRecord>(std::string_view);
template Result<QueueUsageRecord> Decode<QueueUsageRecord>(std::string_view);
template Result<QueueDayRecord> Decode<QueueDayRecord>(std::string_view);

}  // namespace muster
