#include "coordinator/store/journal_format.h"

#include <xxhash.h>

#include <bit>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <type_traits>
#include <variant>

#include "common/base/json.h"
#include "common/base/version_table.h"
#include "coordinator/store/record_codec.h"

namespace muster {
namespace {

static_assert(std::endian::native == std::endian::little, "journals are little-endian");

constexpr std::string_view kMagic = "MUSTERJL";
constexpr std::size_t kPayloadHashAt = 40;
constexpr std::size_t kHeaderHashAt = 48;
constexpr std::size_t kHeaderBytes = 56;
constexpr std::size_t kOperationHeaderBytes = 21;
constexpr std::size_t kNameDigits = 16;

template <typename T>
void Put(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(std::string_view bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

Status Damaged(const std::string& path, std::size_t offset, const std::string& what) {
  return DataLoss(path + " is damaged at byte " + std::to_string(offset) + ": " + what);
}

std::uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

JournalOperation::Kind KindOf(std::uint8_t value) {
  return static_cast<JournalOperation::Kind>(value);
}

bool IsKnown(std::uint8_t kind) {
  return kind >= static_cast<std::uint8_t>(JournalOperation::Kind::kPutJob) &&
         kind <= static_cast<std::uint8_t>(JournalOperation::Kind::kDeleteSecret);
}

}  // namespace

std::string EncodeFrame(const Frame& frame) {
  std::string bytes;
  bytes.reserve(kHeaderBytes + frame.payload.size());
  bytes.append(kMagic);
  Put(&bytes, static_cast<std::uint32_t>(kJournalVersions.max));
  Put(&bytes, static_cast<std::uint32_t>(frame.kind));
  Put(&bytes, frame.epoch);
  Put(&bytes, frame.number);
  Put(&bytes, static_cast<std::uint64_t>(frame.payload.size()));
  Put(&bytes, Hash(frame.payload));
  Put(&bytes, Hash(bytes));
  bytes.append(frame.payload);
  return bytes;
}

Result<Frame> DecodeFrame(std::string_view bytes, const std::string& path) {
  if (bytes.size() < kHeaderBytes) {
    return Damaged(path, bytes.size(),
                   "the file ends in its header of " + std::to_string(kHeaderBytes) + " bytes");
  }
  if (bytes.substr(0, kMagic.size()) != kMagic) return Damaged(path, 0, "not a journal file");
  // Before the checksum: another version may keep it elsewhere.
  // Older versions have fewer kinds of operations.
  if (const auto version = static_cast<int>(Take<std::uint32_t>(bytes, 8));
      !kJournalVersions.contains(version)) {
    return FailedPrecondition(path + " has version " + std::to_string(version) +
                              ", this version of Muster knows " + RangeText(kJournalVersions) +
                              "; start the version that wrote it, or use another --journal");
  }
  if (Hash(bytes.substr(0, kHeaderHashAt)) != Take<std::uint64_t>(bytes, kHeaderHashAt)) {
    return Damaged(path, kHeaderHashAt, "the header's checksum differs");
  }
  const std::string_view payload = bytes.substr(kHeaderBytes);
  const auto length = Take<std::uint64_t>(bytes, 32);
  if (payload.size() != length) {
    return Damaged(path, bytes.size(),
                   "the payload has " + std::to_string(payload.size()) + " bytes instead of " +
                       std::to_string(length));
  }
  if (Hash(payload) != Take<std::uint64_t>(bytes, kPayloadHashAt)) {
    return Damaged(path, kHeaderBytes, "the payload's checksum differs");
  }
  return Frame{static_cast<FrameKind>(Take<std::uint32_t>(bytes, 12)),
               Take<std::uint64_t>(bytes, 16), Take<std::uint64_t>(bytes, 24), payload};
}

void AppendOperation(const JournalOperation& operation, std::string* payload) {
  Put(payload, static_cast<std::uint8_t>(operation.kind));
  Put(payload, operation.number);
  Put(payload, static_cast<std::uint32_t>(operation.key.size()));
  Put(payload, static_cast<std::uint32_t>(operation.name.size()));
  Put(payload, static_cast<std::uint32_t>(operation.text.size()));
  payload->append(operation.key).append(operation.name).append(operation.text);
}

namespace {

std::string PlaceOf(const SecretName& secret) { return secret.queue + "/" + secret.name; }

void AppendSecret(const PutSecret& op, std::string* payload) {
  const SecretName& secret = op.secret.secret;
  AppendOperation(
      {JournalOperation::Kind::kPutSecret, 0, secret.owner, PlaceOf(secret), Encode(op.secret)},
      payload);
}

void AppendSecret(const DeleteSecret& op, std::string* payload) {
  AppendOperation(
      {JournalOperation::Kind::kDeleteSecret, 0, op.secret.owner, PlaceOf(op.secret), {}}, payload);
}

}  // namespace

void AppendOperation(const StoreOperation& operation, std::string* payload) {
  using Kind = JournalOperation::Kind;
  std::visit(
      [payload](const auto& op) {
        using T = std::decay_t<decltype(op)>;
        JournalOperation out;
        std::string key, text;
        if constexpr (std::is_same_v<T, PutJob>) {
          text = Encode(op.job);
          out = {Kind::kPutJob, 0, op.job.id.value, {}, text};
        } else if constexpr (std::is_same_v<T, PutAttempt>) {
          text = Encode(op.attempt);
          const auto generation = static_cast<std::uint64_t>(op.attempt.generation);
          out = {Kind::kPutAttempt, generation, op.attempt.job.value, {}, text};
        } else if constexpr (std::is_same_v<T, PutCheckpoint>) {
          text = Encode(op.checkpoint);
          out = {Kind::kPutCheckpoint, 0, op.checkpoint.job.value, op.checkpoint.directory, text};
        } else if constexpr (std::is_same_v<T, DeleteCheckpoint>) {
          out = {Kind::kDeleteCheckpoint, 0, op.job.value, op.directory, {}};
        } else if constexpr (std::is_same_v<T, PutNode>) {
          text = Encode(op.node);
          out = {Kind::kPutNode, 0, op.node.name.value, {}, text};
        } else if constexpr (std::is_same_v<T, DeleteNode>) {
          out = {Kind::kDeleteNode, 0, op.node.value, {}, {}};
        } else if constexpr (std::is_same_v<T, ArchiveJob>) {
          text = Encode(op.job);
          out = {Kind::kArchiveJob, 0, op.job.id.value, {}, text};
        } else if constexpr (std::is_same_v<T, DeleteArchivedJob>) {
          out = {Kind::kDeleteArchived, 0, op.job.value, {}, {}};
        } else if constexpr (std::is_same_v<T, PutArchivedJob>) {
          text = Encode(op.job);
          out = {Kind::kPutArchivedJob, 0, op.job.id.value, {}, text};
        } else if constexpr (std::is_same_v<T, PutArchivedCheckpoint>) {
          text = Encode(op.checkpoint);
          out = {Kind::kPutArchivedCheckpoint, 0, op.checkpoint.job.value, op.checkpoint.directory,
                 text};
        } else if constexpr (std::is_same_v<T, PutArchivedTime>) {
          text = Encode(GoodputUsage{.micros = op.micros});
          out = {Kind::kPutArchivedTime, 0, {}, {}, text};
        } else if constexpr (std::is_same_v<T, PutQueues>) {
          text = Encode(op.queues);
          out = {Kind::kPutQueues, 0, {}, {}, text};
        } else if constexpr (std::is_same_v<T, PutUsers>) {
          text = Encode(op.users);
          out = {Kind::kPutUsers, 0, {}, {}, text};
        } else if constexpr (std::is_same_v<T, AppendAudit>) {
          out = {Kind::kAppendAudit, op.seq, {}, {}, op.line};
        } else if constexpr (requires { AppendSecret(op, payload); }) {
          return AppendSecret(op, payload);
        } else if constexpr (std::is_same_v<T, PutQueueUsage>) {
          text = Encode(QueueUsageRecord{op.queue, op.usage});
          out = {Kind::kPutQueueUsage, 0, op.queue, {}, text};
        } else if constexpr (std::is_same_v<T, DeleteQueueUsage>) {
          out = {Kind::kDeleteQueueUsage, 0, op.queue, {}, {}};
        } else if constexpr (std::is_same_v<T, PutQueueDay>) {
          key = KeyOf(op.record);
          text = Encode(op.record);
          out = {Kind::kPutQueueDay, static_cast<std::uint64_t>(op.record.day), key, {}, text};
        } else if constexpr (std::is_same_v<T, DeleteQueueDay>) {
          out = {Kind::kDeleteQueueDay, static_cast<std::uint64_t>(op.day), op.queue, {}, {}};
        } else {
          static_assert(std::is_same_v<T, AppendEvent>);
          text = Encode(op.event);
          out = {Kind::kAppendEvent, op.event.seq, op.event.job.value, {}, text};
        }
        AppendOperation(out, payload);
      },
      operation);
}

Status ForEachOperation(std::string_view payload,
                        const std::function<void(const JournalOperation&)>& function) {
  for (std::size_t offset = 0; offset < payload.size();) {
    const auto fail = [offset](const char* what) {
      return DataLoss("the operation at byte " + std::to_string(offset) + " of the payload " +
                      what);
    };
    if (payload.size() - offset < kOperationHeaderBytes) return fail("is cut off");
    const auto kind = Take<std::uint8_t>(payload, offset);
    if (!IsKnown(kind)) return fail("has a kind that this version of Muster does not support");
    JournalOperation operation{KindOf(kind), Take<std::uint64_t>(payload, offset + 1), {}, {}, {}};
    const std::uint64_t key = Take<std::uint32_t>(payload, offset + 9);
    const std::uint64_t name = Take<std::uint32_t>(payload, offset + 13);
    const std::uint64_t text = Take<std::uint32_t>(payload, offset + 17);
    const std::size_t begin = offset + kOperationHeaderBytes;
    if (payload.size() - begin < key + name + text) return fail("is cut off");
    operation.key = payload.substr(begin, key);
    operation.name = payload.substr(begin + key, name);
    operation.text = payload.substr(begin + key + name, text);
    function(operation);
    offset = begin + key + name + text;
  }
  return OkStatus();
}

namespace {

template <typename Operation, typename Record>
Result<std::optional<StoreOperation>> DecodeAs(std::string_view text, Record Operation::*field) {
  MUSTER_ASSIGN_OR_RETURN(Record record, Decode<Record>(text));
  Operation operation;
  operation.*field = std::move(record);
  return {std::move(operation)};
}

SecretName SecretNameOf(const JournalOperation& operation) {
  const std::size_t slash = operation.name.rfind('/');
  return {std::string(operation.key), std::string(operation.name.substr(0, slash)),
          std::string(operation.name.substr(std::min(slash + 1, operation.name.size())))};
}

Result<std::optional<StoreOperation>> DecodeAny(const JournalOperation& operation) {
  using Kind = JournalOperation::Kind;
  const std::string key(operation.key);
  const std::string_view text = operation.text;
  const auto day = static_cast<std::int64_t>(operation.number);
  switch (operation.kind) {
    case Kind::kPutJob: return DecodeAs(text, &PutJob::job);
    case Kind::kPutAttempt: return DecodeAs(text, &PutAttempt::attempt);
    case Kind::kPutCheckpoint: return DecodeAs(text, &PutCheckpoint::checkpoint);
    case Kind::kDeleteCheckpoint:
      return {DeleteCheckpoint{JobId{key}, std::string(operation.name)}};
    case Kind::kPutNode: return DecodeAs(text, &PutNode::node);
    case Kind::kAppendEvent: return DecodeAs(text, &AppendEvent::event);
    case Kind::kBeginEpoch: break;
    case Kind::kDeleteNode: return {DeleteNode{NodeName{key}}};
    case Kind::kArchiveJob: return DecodeAs(text, &ArchiveJob::job);
    case Kind::kDeleteArchived: return {DeleteArchivedJob{JobId{key}}};
    case Kind::kPutArchivedTime: {
      MUSTER_ASSIGN_OR_RETURN(const GoodputUsage time, Decode<GoodputUsage>(text));
      return {PutArchivedTime{time.micros}};
    }
    case Kind::kPutArchivedJob: return DecodeAs(text, &PutArchivedJob::job);
    case Kind::kPutArchivedCheckpoint: return DecodeAs(text, &PutArchivedCheckpoint::checkpoint);
    case Kind::kPutQueues: return DecodeAs(text, &PutQueues::queues);
    case Kind::kPutQueueUsage: {
      MUSTER_ASSIGN_OR_RETURN(QueueUsageRecord usage, Decode<QueueUsageRecord>(text));
      return {PutQueueUsage{std::move(usage.queue), usage.usage}};
    }
    case Kind::kDeleteQueueUsage: return {DeleteQueueUsage{key}};
    case Kind::kPutQueueDay: return DecodeAs(text, &PutQueueDay::record);
    case Kind::kDeleteQueueDay: return {DeleteQueueDay{key, day}};
    case Kind::kPutUsers: return DecodeAs(text, &PutUsers::users);
    case Kind::kAppendAudit: return {AppendAudit{operation.number, std::string(text)}};
    case Kind::kPutSecret: return DecodeAs(text, &PutSecret::secret);
    case Kind::kDeleteSecret: return {DeleteSecret{SecretNameOf(operation)}};
  }
  return std::optional<StoreOperation>();
}

}  // namespace

Result<std::optional<StoreOperation>> DecodeOperation(const JournalOperation& operation) {
  MUSTER_ASSIGN_OR_RETURN(std::optional<StoreOperation> decoded, DecodeAny(operation));
  if (!decoded) return decoded;
  std::string payload;
  AppendOperation(*decoded, &payload);
  Status same;
  MUSTER_RETURN_IF_ERROR(ForEachOperation(payload, [&](const JournalOperation& own) {
    if (own.key != operation.key || own.name != operation.name || own.number != operation.number)
      same = DataLoss("its record is that of '" + std::string(own.key) + "' '" +
                      std::string(own.name) + "' " + std::to_string(own.number));
  }));
  MUSTER_RETURN_IF_ERROR(same);
  return decoded;
}

std::string EpochClaim::Text() const {
  if (epoch == 0) return "an unknown coordinator";
  std::string text = "epoch " + std::to_string(epoch) + " on node " + node + " (pid ";
  text += std::to_string(pid);
  if (!address.empty()) text += ", " + address;
  return text + ")";
}

std::string EncodeClaim(const EpochClaim& claim) {
  const nlohmann::json json = {{"epoch", claim.epoch},     {"node", claim.node},
                               {"pid", claim.pid},         {"address", claim.address},
                               {"page", claim.page},       {"ready", claim.ready},
                               {"unix_ms", claim.unix_ms}, {"nonce", claim.nonce}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<EpochClaim> DecodeClaim(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return EpochClaim{.epoch = json.at("epoch").get<std::uint64_t>(),
                      .node = json.at("node").get<std::string>(),
                      .pid = json.at("pid").get<std::int64_t>(),
                      .address = json.value("address", std::string()),
                      .page = json.value("page", std::string()),
                      .ready = json.value("ready", false),
                      .unix_ms = json.value("unix_ms", std::int64_t{}),
                      .nonce = json.value("nonce", std::string())};
  } catch (const std::exception& error) {
    return DataLoss(std::string("the claim of an epoch cannot be read: ") + error.what());
  }
}

std::string NumberedName(std::uint64_t number) {
  char name[32];
  std::snprintf(name, sizeof(name), "%0*llu", static_cast<int>(kNameDigits),
                static_cast<unsigned long long>(number));
  return name;
}

std::uint64_t NumberOfName(std::string_view name) {
  std::uint64_t number = 0;
  if (name.size() < kNameDigits) return 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? number : 0;
}

}  // namespace muster
