#include "coordinator/store/etcd_contents.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/store/archive_pack.h"
#include "coordinator/store/etcd_archive.h"
#include "coordinator/store/etcd_client.h"
#include "coordinator/store/etcd_keys.h"
#include "coordinator/store/etcd_leadership.h"
#include "coordinator/store/etcd_reader.h"
#include "coordinator/store/etcd_writer.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/record_codec.h"

namespace muster {

namespace pb = etcdserverpb;

namespace {

using Kind = JournalOperation::Kind;
using Entries = std::map<std::string, std::string>;  // by key below the prefix

constexpr int kReads = 3;
constexpr std::uint64_t kReportedAtOnce = 1000;
constexpr std::uint64_t kKept = 100'000;  // events, and lines of the audit trail
constexpr char kReadFormat[] = "1";

std::uint64_t NumeralOf(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// What leaders have there beside the contents.
bool IsOfLeaders(std::string_view key) {
  return key == "format" || key == "epoch" || key == kEtcdLeaderKey || key == "staged" ||
         key.starts_with("txn/") || key.starts_with("stage/") || key.starts_with("coordinators/");
}

// What a leader has staged counts, also while the keys themselves have other values.
Status MakeStaged(const EtcdKeys& keys, Entries* entries) {
  const auto staged = entries->find("staged");
  if (staged == entries->end()) return OkStatus();
  const auto below = [&keys](const std::string& key) { return key.substr(keys.prefix().size()); };
  const std::string stage = below(staged->second);
  std::vector<std::string> parts;
  for (auto at = entries->lower_bound(stage); at != entries->end() && at->first.starts_with(stage);
       ++at)
    parts.push_back(at->second);
  for (const std::string& part : parts) {
    pb::TxnRequest request;
    if (!request.ParseFromString(part)) return DataLoss(stage + " holds no operations");
    EtcdAssembler assembler;
    const auto put = [&](Result<std::optional<EtcdEntry>> entry) -> Status {
      if (!entry.ok()) return entry.status();
      if (*entry) (*entries)[below((*entry)->key)] = (*entry)->value;
      return OkStatus();
    };
    for (const pb::RequestOp& operation : request.success()) {
      if (operation.has_request_delete_range()) {
        const pb::DeleteRangeRequest& range = operation.request_delete_range();
        entries->erase(entries->lower_bound(below(range.key())),
                       entries->lower_bound(below(range.range_end())));
        continue;
      }
      pb::KeyValue next;
      next.set_key(operation.request_put().key());
      next.set_value(operation.request_put().value());
      MUSTER_RETURN_IF_ERROR(put(assembler.Add(next)));
    }
    MUSTER_RETURN_IF_ERROR(put(assembler.Finish()));
  }
  return OkStatus();
}

Result<Entries> ReadEntries(EtcdClient& client, const EtcdKeys& keys,
                            const RecordsProgress& progress) {
  Status status;
  for (int i = 0; i < kReads; ++i) {
    Entries entries;
    EtcdReader reader(client);
    status = reader.Read(keys.prefix(), EtcdPrefixEnd(keys.prefix()), [&](EtcdEntry entry) {
      entries[entry.key.substr(keys.prefix().size())] = std::move(entry.value);
      return entries.size() % kReportedAtOnce == 0 ? progress(entries.size()) : OkStatus();
    });
    if (status.code() == StatusCode::kOutOfRange) continue;  // compacted meanwhile
    MUSTER_RETURN_IF_ERROR(status);
    MUSTER_RETURN_IF_ERROR(MakeStaged(keys, &entries));
    return entries;
  }
  return status;
}

// The record with its job file, which has a key of its own; what cannot be read stays as it is.
std::string WholeJob(const Entries& entries, const std::string& folder, const std::string& text) {
  Result<JobRecord> job = Decode<JobRecord>(text);
  const auto spec = entries.find(folder + "spec");
  if (!job.ok() || spec == entries.end()) return text;
  job->spec_yaml = spec->second;
  return Encode(*job);
}

void AppendJobs(const Entries& entries, std::string* payload) {
  const std::string all = "jobs/";
  for (auto at = entries.lower_bound(all); at != entries.end() && at->first.starts_with(all);
       ++at) {
    const auto& [key, text] = *at;
    const std::vector<std::string> names = EtcdNames(key);
    if (names.size() == 3 && names[2] == "record") {
      const std::string folder = key.substr(0, key.rfind('/') + 1);
      AppendOperation({Kind::kPutJob, 0, names[1], {}, WholeJob(entries, folder, text)}, payload);
    } else if (names.size() == 4 && names[2] == "attempts") {
      AppendOperation({Kind::kPutAttempt, NumeralOf(names[3]), names[1], {}, text}, payload);
    } else if (names.size() == 4 && names[2] == "checkpoints") {
      AppendOperation({Kind::kPutCheckpoint, 0, names[1], names[3], text}, payload);
    }
  }
}

Status AppendPack(const ArchivePack& pack, std::string* payload) {
  for (const ArchiveEntry& entry : pack.entries()) {
    MUSTER_ASSIGN_OR_RETURN(ArchivedRecords records, pack.Records(entry.job.id));
    AppendOperation(PutJob{std::move(records.job)}, payload);
    for (AttemptRecord& attempt : records.attempts)
      AppendOperation(PutAttempt{std::move(attempt)}, payload);
    for (CheckpointRecord& checkpoint : records.checkpoints)
      AppendOperation(PutCheckpoint{std::move(checkpoint)}, payload);
    AppendOperation(ArchiveJob{entry.job}, payload);
  }
  return OkStatus();
}

// Unlike other records, those of a pack that is damaged end the reading.
Status AppendArchive(const Entries& entries, std::string* payload) {
  std::map<std::string, ArchivePack::Values> packs;  // by number
  for (const auto& [key, value] : entries) {
    if (key.starts_with("archive/")) packs[EtcdNames(key)[1]].records = value;
    if (key.starts_with("archive-index/")) packs[EtcdNames(key)[1]].index = value;
  }
  for (const auto& [number, values] : packs) {
    const auto pack = ArchivePack::Decode(values);
    Status status = pack.ok() ? AppendPack(*pack, payload) : pack.status();
    if (!status.ok()) return status.WithContext("archive/" + number);
  }
  return OkStatus();
}

void AppendOther(const std::string& key, const std::string& text, std::string* payload) {
  const std::vector<std::string> names = EtcdNames(key);
  const std::string& folder = names[0];
  const std::string& name = names.size() > 1 ? names[1] : "";
  JournalOperation out{.text = text};
  std::string second;
  if (folder == "nodes") {
    out = {Kind::kPutNode, 0, name, {}, text};
  } else if (folder == "queues") {
    out.kind = Kind::kPutQueues;
  } else if (folder == "users") {
    out.kind = Kind::kPutUsers;
  } else if (folder == "archived-time") {
    out.kind = Kind::kPutArchivedTime;
  } else if (folder == "queue-usage") {
    out = {Kind::kPutQueueUsage, 0, name, {}, text};
  } else if (folder == "queue-days" && names.size() == 3) {
    out = {Kind::kPutQueueDay, NumeralOf(names[2]), name, {}, text};
  } else if (folder == "secrets" && names.size() == 4) {
    second = names[2] + "/" + names[3];
    out = {Kind::kPutSecret, 0, name, second, text};
  } else if (folder == "events") {
    const Result<EventRecord> event = Decode<EventRecord>(text);
    second = event.ok() ? event->job.value : "";
    out = {Kind::kAppendEvent, NumeralOf(name), second, {}, text};
  } else if (folder == "audit") {
    out = {Kind::kAppendAudit, NumeralOf(name), {}, {}, text};
  } else {
    return;
  }
  AppendOperation(out, payload);
}

// The keys of contents, and their values.
class Keys {
 public:
  Keys(const EtcdKeys& keys, const std::vector<StoreOperation>& operations);
  Status Add(const StoreOperation& operation);
  EtcdChanges Take();

 private:
  void Put(const std::string& key, std::string value) { changes_[key] = std::move(value); }
  void Add(const JobRecord& job);
  void Add(const ArchivedJob& job);
  void PutNewestPack();
  // nullptr: the job is not archived.
  ArchivedRecords* FindArchived(const JobId& job);

  const EtcdKeys& keys_;
  EtcdChanges changes_;
  std::map<JobId, ArchivedRecords> archived_;
  ArchivePack pack_;  // the newest
  std::uint64_t number_ = 1;
};

Keys::Keys(const EtcdKeys& keys, const std::vector<StoreOperation>& operations) : keys_(keys) {
  for (const StoreOperation& each : operations)
    if (const auto* archive = std::get_if<ArchiveJob>(&each)) archived_[archive->job.id];
}

ArchivedRecords* Keys::FindArchived(const JobId& job) {
  const auto found = archived_.find(job);
  return found == archived_.end() ? nullptr : &found->second;
}

void Keys::Add(const JobRecord& record) {
  if (ArchivedRecords* archived = FindArchived(record.id)) {
    archived->job = record;
    return;
  }
  const std::string folder = keys_.OfJob(record.id);
  JobRecord job = record;
  Put(folder + "spec", std::exchange(job.spec_yaml, ""));
  Put(folder + "record", Encode(job));
}

// Its records were before it.
void Keys::Add(const ArchivedJob& job) {
  const ArchivedRecords records = std::exchange(archived_[job.id], {});
  if (records.job.id.empty()) return;  // there is no record of it
  pack_.Add({job, records.job.name, records.job.output_dir}, records);
  if (pack_.full()) PutNewestPack();
}

void Keys::PutNewestPack() {
  PutPack(keys_, number_++, pack_, &changes_);
  pack_ = {};
}

EtcdChanges Keys::Take() {
  if (!pack_.empty()) PutNewestPack();
  return std::move(changes_);
}

Status Keys::Add(const StoreOperation& operation) {
  return std::visit(
      [this](const auto& op) -> Status {
        using T = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<T, PutJob> || std::is_same_v<T, ArchiveJob>) {
          Add(op.job);
        } else if constexpr (std::is_same_v<T, PutAttempt>) {
          if (ArchivedRecords* archived = FindArchived(op.attempt.job))
            archived->attempts.push_back(op.attempt);
          else
            Put(AttemptKey(keys_.OfJob(op.attempt.job), op.attempt.generation), Encode(op.attempt));
        } else if constexpr (std::is_same_v<T, PutCheckpoint>) {
          if (ArchivedRecords* archived = FindArchived(op.checkpoint.job))
            archived->checkpoints.push_back(op.checkpoint);
          else
            Put(CheckpointKey(keys_.OfJob(op.checkpoint.job), op.checkpoint.directory),
                Encode(op.checkpoint));
        } else if constexpr (std::is_same_v<T, PutNode>) {
          Put(keys_.Named("nodes/", op.node.name.value), Encode(op.node));
        } else if constexpr (std::is_same_v<T, AppendEvent>) {
          Put(keys_.Numbered("events/", op.event.seq), Encode(op.event));
        } else if constexpr (std::is_same_v<T, AppendAudit>) {
          Put(keys_.Numbered("audit/", op.seq), op.line);
        } else if constexpr (std::is_same_v<T, PutArchivedTime>) {
          Put(keys_.Under("archived-time"), Encode(GoodputUsage{.micros = op.micros}));
        } else if constexpr (std::is_same_v<T, PutQueues>) {
          Put(keys_.Under("queues"), Encode(op.queues));
        } else if constexpr (std::is_same_v<T, PutUsers>) {
          Put(keys_.Under("users"), Encode(op.users));
        } else if constexpr (std::is_same_v<T, PutSecret>) {
          Put(keys_.Secret(op.secret.secret), Encode(op.secret));
        } else if constexpr (std::is_same_v<T, PutQueueUsage>) {
          Put(keys_.Named("queue-usage/", op.queue), Encode(QueueUsageRecord{op.queue, op.usage}));
        } else if constexpr (std::is_same_v<T, PutQueueDay>) {
          Put(keys_.QueueDay(KeyOf(op.record), op.record.day), Encode(op.record));
        } else {
          return Internal("contents of a store delete nothing");
        }
        return OkStatus();
      },
      operation);
}

Status Leads(const EpochClaim& leader, const EtcdPlace& place) {
  return FailedPrecondition("the coordinator of " + leader.Text() + " leads at " + place.prefix +
                            "; stop all coordinators first. One that was killed leads until its "
                            "lease has ended");
}

EtcdLeadershipOptions CampaignFor(const EtcdPlace& place, const EtcdKeys& keys) {
  EtcdLeadershipOptions campaign{.access = place.access, .keys = keys};
  campaign.claim = {
      .node = "muster restore", .pid = ::getpid(), .unix_ms = SystemClock().UnixMillis()};
  campaign.on_wait = [place](const EpochClaim* leader) {
    return leader == nullptr ? OkStatus() : Leads(*leader, place);
  };
  return campaign;
}

}  // namespace

Result<StoreContents> ReadEtcdStore(const EtcdPlace& place, const RecordsProgress& progress) {
  const EtcdKeys keys(place.prefix);
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(place.access, kEtcdAnswer));
  MUSTER_ASSIGN_OR_RETURN(const Entries entries, ReadEntries(*client, keys, progress));
  const auto format = entries.find("format");
  if (format == entries.end())
    return NotFound("there is no store at " + keys.prefix() + "; name the right --etcd-prefix");
  if (format->second != kReadFormat)
    return FailedPrecondition("the store at " + keys.prefix() + " has format " + format->second +
                              ", this version of Muster knows " + kReadFormat +
                              "; use the version that wrote it");
  StoreContents contents;
  if (const auto epoch = entries.find("epoch"); epoch != entries.end())
    contents.epoch = NumeralOf(epoch->second);
  MUSTER_RETURN_IF_ERROR(AppendArchive(entries, &contents.payload));
  AppendJobs(entries, &contents.payload);
  for (const auto& [key, text] : entries) AppendOther(key, text, &contents.payload);
  return InOrder(std::move(contents), std::numeric_limits<std::uint64_t>::max());
}

Status WriteEtcdStore(const EtcdPlace& place, const StoreContents& contents,
                      IfNotEmpty if_not_empty, const RecordsProgress& progress) {
  const EtcdKeys keys(place.prefix);
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(place.access, kEtcdAnswer));
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdLeadership> leadership,
                          EtcdLeadership::Campaign(*client, CampaignFor(place, keys)));
  EtcdWriter writer(*client, *leadership, keys, [] {});
  writer.StopWaiting();  // etcd that is full is a failure here
  MUSTER_RETURN_IF_ERROR(writer.Recover());
  MUSTER_ASSIGN_OR_RETURN(const StoreContents kept, InOrder(contents, kKept));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<StoreOperation> operations, OperationsOf(kept));
  Keys made(keys, operations);
  for (const StoreOperation& operation : operations) MUSTER_RETURN_IF_ERROR(made.Add(operation));
  EtcdChanges changes = made.Take();
  MUSTER_ASSIGN_OR_RETURN(const Entries before, ReadEntries(*client, keys, progress));
  for (const auto& [key, value] : before) {
    if (IsOfLeaders(key)) continue;
    // How far coordinators have copied a trail, which is another one then.
    const bool is_record = !key.starts_with("exported/");
    if (is_record && if_not_empty == IfNotEmpty::kRefuse)
      return AlreadyExists("there are records at " + keys.prefix() +
                           " already; --replace replaces them");
    changes.emplace(keys.Under(key), std::nullopt);
  }
  changes[keys.Under("epoch")] = std::to_string(contents.epoch);
  // They count all at once, however many they are.
  MUSTER_RETURN_IF_ERROR(writer.Write(changes));
  return writer.Settle();
}

Status CheckNoneLeads(const EtcdPlace& place) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(place.access, kEtcdAnswer));
  const std::string key = EtcdKeys(place.prefix).Under(kEtcdLeaderKey);
  MUSTER_ASSIGN_OR_RETURN(const auto leader, EtcdReader(*client).Get(key));
  if (!leader) return OkStatus();
  const Result<EpochClaim> claim = DecodeClaim(*leader);
  return Leads(claim.ok() ? *claim : EpochClaim{}, place);
}

}  // namespace muster
