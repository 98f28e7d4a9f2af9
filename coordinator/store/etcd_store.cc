#include "coordinator/store/etcd_store.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "coordinator/store/etcd_export.h"
#include "coordinator/store/record_codec.h"

namespace muster {
namespace {

constexpr Duration kWatchAnswer = std::chrono::milliseconds(500);
constexpr Duration kCompactAnswer = std::chrono::seconds(1);
constexpr int kLoads = 3;
constexpr std::uint64_t kHistoryBytes = 32 << 20;
constexpr std::uint64_t kPrunedAtOnce = 256;
constexpr Duration kPruneRetry = std::chrono::seconds(5);  // while exports are behind

Status CheckVersions(EtcdClient& client, const EtcdStoreOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const auto members, client.Members(kEtcdAnswer));
  for (const EtcdClient::MemberStatus& member : members)
    MUSTER_RETURN_IF_ERROR(
        CheckEtcdVersion(member.version, options.allow_unsafe).WithContext(member.address));
  return OkStatus();
}

template <typename T>
Status DecodeInto(const EtcdEntry& entry, std::vector<T>* into) {
  Result<T> record = Decode<T>(entry.value);
  if (!record.ok()) return record.status().WithContext(entry.key);
  into->push_back(*std::move(record));
  return OkStatus();
}

// The records of all keys that begin so.
template <typename T>
Status ReadRecords(EtcdReader& reader, const std::string& prefix, std::vector<T>* into) {
  return reader.Read(prefix, EtcdPrefixEnd(prefix),
                     [into](const EtcdEntry& entry) { return DecodeInto(entry, into); });
}

// The record of one key; as it was where there is none.
template <typename T>
Status ReadRecord(EtcdReader& reader, const std::string& key, T* into) {
  MUSTER_ASSIGN_OR_RETURN(const auto text, reader.Get(key));
  if (!text) return OkStatus();
  Result<T> record = Decode<T>(*text);
  if (!record.ok()) return record.status().WithContext(key);
  *into = *std::move(record);
  return OkStatus();
}

// Its job file has a key of its own.
std::string RecordWithoutSpec(JobRecord job) {
  job.spec_yaml.clear();
  return Encode(job);
}

// What lies under the keys of one job, `folder`.
Result<ArchivedRecords> RecordsOf(const std::string& folder,
                                  const std::vector<EtcdEntry>& entries) {
  ArchivedRecords records;
  std::string spec;
  for (const EtcdEntry& entry : entries) {
    const std::string_view name = std::string_view(entry.key).substr(folder.size());
    if (name == "record") {
      std::vector<JobRecord> job;
      MUSTER_RETURN_IF_ERROR(DecodeInto(entry, &job));
      records.job = std::move(job.front());
    } else if (name == "spec") {
      spec = entry.value;
    } else if (name.starts_with("attempts/")) {
      MUSTER_RETURN_IF_ERROR(DecodeInto(entry, &records.attempts));
    } else if (name.starts_with("checkpoints/")) {
      MUSTER_RETURN_IF_ERROR(DecodeInto(entry, &records.checkpoints));
    }
  }
  records.job.spec_yaml = std::move(spec);
  return records;
}

// What jobs and queues had.
void AddFigures(const EtcdKeys& keys, const PutArchivedTime& op, EtcdChanges* changes) {
  GoodputUsage time;
  time.micros = op.micros;
  (*changes)[keys.Under("archived-time")] = Encode(time);
}

void AddFigures(const EtcdKeys& keys, const PutQueueUsage& op, EtcdChanges* changes) {
  (*changes)[keys.Named("queue-usage/", op.queue)] = Encode(QueueUsageRecord{op.queue, op.usage});
}

void AddFigures(const EtcdKeys& keys, const DeleteQueueUsage& op, EtcdChanges* changes) {
  (*changes)[keys.Named("queue-usage/", op.queue)] = std::nullopt;
}

void AddFigures(const EtcdKeys& keys, const PutQueueDay& op, EtcdChanges* changes) {
  (*changes)[keys.QueueDay(KeyOf(op.record), op.record.day)] = Encode(op.record);
}

void AddFigures(const EtcdKeys& keys, const DeleteQueueDay& op, EtcdChanges* changes) {
  (*changes)[keys.QueueDay(op.queue, op.day)] = std::nullopt;
}

}  // namespace

Result<std::unique_ptr<EtcdStore>> EtcdStore::Open(EtcdStoreOptions options) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<EtcdClient> client,
                          EtcdClient::Open(options.access, kEtcdAnswer));
  MUSTER_RETURN_IF_ERROR(CheckVersions(*client, options));
  EtcdLeadershipOptions campaign{.access = options.access,
                                 .keys = EtcdKeys(options.prefix),
                                 .claim = options.claim,
                                 .lease_seconds = options.lease_seconds,
                                 .ends_unconfirmed = options.ends_unconfirmed,
                                 .answers_within = options.answers_within,
                                 .note = options.note};
  campaign.on_wait = [&options, last = std::string()](const EpochClaim* leader) mutable {
    const std::string text = leader == nullptr ? "" : leader->Text();
    if (std::exchange(last, text) != text && !text.empty())
      options.note("waits for the leader key, which " + text + " has");
    return options.on_wait(leader);
  };
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<EtcdLeadership> leadership,
                          EtcdLeadership::Campaign(*client, std::move(campaign)));
  std::unique_ptr<EtcdStore> store(
      new EtcdStore(std::move(options), std::move(client), std::move(leadership)));
  MUSTER_RETURN_IF_ERROR(store->writer_.Recover().WithContext("what was staged"));
  store->transactions_ = store->writer_.transactions();
  store->queue_.Start();
  return store;
}

EtcdStore::EtcdStore(EtcdStoreOptions options, std::unique_ptr<EtcdClient> client,
                     std::unique_ptr<EtcdLeadership> leadership)
    : options_(std::move(options)),
      keys_(options_.prefix),
      client_(std::move(client)),
      leadership_(std::move(leadership)),
      writer_(*client_, *leadership_, keys_, [this] { ReportChange(); }),
      archive_(*client_, keys_),
      next_compaction_(SystemClock().Now() + options_.compaction),
      queue_(*this, {.path = "etcd", .max_queued = options_.max_queued}) {}

EtcdStore::~EtcdStore() {
  leadership_->OnAnswer([] {});  // what it calls ends before the leadership does
  writer_.StopWaiting();
}

bool EtcdStore::IsCurrent() const { return leadership_->IsConfirmed(); }

Status EtcdStore::CheckRoom() const {
  if (writer_.has_room()) return OkStatus();
  return ResourceExhausted(
      "etcd has no space left for changes (NOSPACE): raise its --quota-backend-bytes, or compact "
      "and defragment it; then 'etcdctl alarm disarm'");
}

void EtcdStore::ReportChange() {
  std::lock_guard lock(change_mutex_);
  on_change_();
}

Result<StoredState> EtcdStore::Load() {
  // The thread is idle: nothing was committed yet.
  Status status;
  for (int i = 0; i < kLoads; ++i) {
    StoredState state;
    status = LoadAll(&state).WithContext("load " + keys_.prefix());
    if (status.ok()) return state;
    if (status.code() != StatusCode::kOutOfRange) break;  // compacted meanwhile
  }
  return status;
}

Status EtcdStore::LoadAll(StoredState* state) {
  EtcdReader reader(*client_);
  MUSTER_RETURN_IF_ERROR(LoadJobs(reader, state));
  MUSTER_RETURN_IF_ERROR(ReadRecords(reader, keys_.Under("nodes/"), &state->nodes));
  MUSTER_RETURN_IF_ERROR(archive_.Load(reader, &state->archived));
  GoodputUsage time;
  MUSTER_RETURN_IF_ERROR(ReadRecord(reader, keys_.Under("archived-time"), &time));
  state->archived_time = time.micros;
  MUSTER_RETURN_IF_ERROR(LoadQueues(reader, state));
  MUSTER_RETURN_IF_ERROR(ReadRecord(reader, keys_.Under("users"), &state->users));
  MUSTER_RETURN_IF_ERROR(ReadRecords(reader, keys_.Under("secrets/"), &state->secrets));
  MUSTER_RETURN_IF_ERROR(LoadEvents(reader, state));
  return LoadAudit(reader, state);
}

Status EtcdStore::LoadJobs(EtcdReader& reader, StoredState* state) {
  specs_.clear();
  const std::string all = keys_.Under("jobs/");
  return reader.Read(all, EtcdPrefixEnd(all),
                     [this, state](const EtcdEntry& entry) { return LoadJobEntry(entry, state); });
}

// The keys of a job are in this order: attempts, checkpoints, record, spec.
Status EtcdStore::LoadJobEntry(const EtcdEntry& entry, StoredState* state) {
  const std::string_view path = std::string_view(entry.key).substr(keys_.Under("jobs/").size());
  const std::string_view name = path.substr(std::min(path.size(), path.find('/') + 1));
  if (name.starts_with("attempts/")) return DecodeInto(entry, &state->attempts);
  if (name.starts_with("checkpoints/")) return DecodeInto(entry, &state->checkpoints);
  if (name == "record") return DecodeInto(entry, &state->jobs);
  if (name == "spec" && !state->jobs.empty() &&
      entry.key == keys_.OfJob(state->jobs.back().id) + "spec") {
    specs_[state->jobs.back().id] = TextPrint(entry.value);
    state->jobs.back().spec_yaml = entry.value;
    return OkStatus();
  }
  return DataLoss(entry.key + " belongs to no job");
}

Status EtcdStore::LoadQueues(EtcdReader& reader, StoredState* state) {
  MUSTER_RETURN_IF_ERROR(ReadRecord(reader, keys_.Under("queues"), &state->queues));
  std::vector<QueueUsageRecord> usage;
  MUSTER_RETURN_IF_ERROR(ReadRecords(reader, keys_.Under("queue-usage/"), &usage));
  for (const QueueUsageRecord& each : usage) state->queue_usage[each.queue] = each.usage;
  return ReadRecords(reader, keys_.Under("queue-days/"), &state->queue_days);
}

Status EtcdStore::LoadEvents(EtcdReader& reader, StoredState* state) {
  events_.clear();
  const std::string all = keys_.Under("events/");
  MUSTER_RETURN_IF_ERROR(
      reader.Read(all, EtcdPrefixEnd(all), [this, state](EtcdEntry entry) -> Status {
        MUSTER_RETURN_IF_ERROR(DecodeInto(entry, &state->events));
        const EventRecord& event = state->events.back();
        events_[event.seq] = {event.job, std::move(entry.value)};
        return OkStatus();
      }));
  oldest_event_ = events_.empty() ? 0 : events_.begin()->first;
  if (state->events.size() > kLoadedEvents)
    state->events.erase(state->events.begin(), state->events.end() - kLoadedEvents);
  return OkStatus();
}

// No number is missing in the trail, so its end is found without reading it.
Status EtcdStore::LoadAudit(EtcdReader& reader, StoredState* state) {
  MUSTER_ASSIGN_OR_RETURN(const auto numbers, reader.NumbersFrom(keys_, "audit/", 0));
  if (numbers.first == 0) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(const auto newest, reader.Get(keys_.Numbered("audit/", numbers.last)));
  if (!newest)
    return DataLoss(keys_.Under("audit/") + " lacks an entry between " +
                    std::to_string(numbers.first) + " and " + std::to_string(numbers.last) +
                    "; restore a backup");
  MUSTER_ASSIGN_OR_RETURN(state->audit, AuditHeadOf(*newest));
  newest_audit_ = state->audit.seq;
  oldest_audit_ = numbers.first;
  return OkStatus();
}

void EtcdStore::Commit(std::vector<StoreOperation> operations, Done done) {
  queue_.Commit(std::move(operations), std::move(done));
}

void EtcdStore::ReadEvents(EventQuery query, EventsDone done) {
  queue_.ReadEvents(std::move(query), std::move(done));
}

void EtcdStore::ReadArchive(ArchiveQuery query, ArchiveDone done) {
  queue_.ReadArchive(std::move(query), std::move(done));
}

void EtcdStore::ReadAudit(AuditQuery query, AuditDone done) {
  queue_.ReadAudit(query, std::move(done));
}

void EtcdStore::WatchLeadership(Duration interval, Done on_lost, std::function<void()> on_change) {
  {
    std::lock_guard lock(change_mutex_);
    on_change_ = std::move(on_change);
  }
  leadership_->OnAnswer([this] { ReportChange(); });
  queue_.Watch(interval, std::move(on_lost));
}

Status EtcdStore::Watch() {
  MUSTER_RETURN_IF_ERROR(leadership_->Check());
  etcdserverpb::RangeRequest leader;
  leader.set_key(keys_.Under(kEtcdLeaderKey));
  const auto read = client_->Range(leader, kWatchAnswer);
  if (!read.ok()) return IsUnanswered(read.status()) ? leadership_->Check() : read.status();
  if (read->kvs_size() > 0 && read->kvs(0).create_revision() == leadership_->revision())
    return OkStatus();
  return Aborted("another coordinator leads");
}

// As many of the commits in one transaction as fit; one that does not fit alone is staged.
Status EtcdStore::WriteGroup(const std::vector<CommitBatch>& group) {
  EtcdChanges together;
  for (const CommitBatch& batch : group) {
    const bool reads = std::ranges::any_of(batch.operations, [](const StoreOperation& operation) {
      return std::holds_alternative<ArchiveJob>(operation) ||
             std::holds_alternative<DeleteArchivedJob>(operation) ||
             std::holds_alternative<PutArchivedJob>(operation) ||
             std::holds_alternative<PutArchivedCheckpoint>(operation);
    });
    // It must see the commits before it.
    if (reads) MUSTER_RETURN_IF_ERROR(writer_.Write(std::exchange(together, {})));
    if (reads) MUSTER_RETURN_IF_ERROR(writer_.Settle());
    EtcdChanges changes;
    for (const StoreOperation& operation : batch.operations)
      MUSTER_RETURN_IF_ERROR(Add(operation, &changes));
    archive_.PutChanged(&changes);
    if (together.empty()) {
      together = std::move(changes);
      continue;
    }
    EtcdChanges with = together;
    for (auto& [key, value] : changes) with[key] = value;
    if (EtcdWriter::Fits(with)) {
      together = std::move(with);
    } else {
      MUSTER_RETURN_IF_ERROR(writer_.Write(together));
      together = std::move(changes);
    }
  }
  const Status status = writer_.Write(together);
  transactions_ = writer_.transactions();
  return status;
}

Status EtcdStore::Add(const StoreOperation& operation, EtcdChanges* changes) {
  const auto put = [changes](const std::string& key, std::string value) -> Status {
    (*changes)[key] = std::move(value);
    return OkStatus();
  };
  const auto erase = [changes](const std::string& key) -> Status {
    (*changes)[key] = std::nullopt;
    return OkStatus();
  };
  return std::visit(
      [&](const auto& op) -> Status {
        using T = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<T, PutJob>) {
          AddJob(op.job, changes);
        } else if constexpr (std::is_same_v<T, PutAttempt>) {
          return put(AttemptKey(keys_.OfJob(op.attempt.job), op.attempt.generation),
                     Encode(op.attempt));
        } else if constexpr (std::is_same_v<T, PutCheckpoint>) {
          return put(CheckpointKey(keys_.OfJob(op.checkpoint.job), op.checkpoint.directory),
                     Encode(op.checkpoint));
        } else if constexpr (std::is_same_v<T, DeleteCheckpoint>) {
          return erase(CheckpointKey(keys_.OfJob(op.job), op.directory));
        } else if constexpr (std::is_same_v<T, PutNode>) {
          return put(keys_.Named("nodes/", op.node.name.value), Encode(op.node));
        } else if constexpr (std::is_same_v<T, DeleteNode>) {
          return erase(keys_.Named("nodes/", op.node.value));
        } else if constexpr (std::is_same_v<T, ArchiveJob>) {
          return Archive(op.job, changes);
        } else if constexpr (std::is_same_v<T, PutArchivedJob>) {
          return archive_.Put(op.job);
        } else if constexpr (std::is_same_v<T, PutArchivedCheckpoint>) {
          return archive_.Put(op.checkpoint);
        } else if constexpr (std::is_same_v<T, DeleteArchivedJob>) {
          return archive_.Remove(op.job);
        } else if constexpr (std::is_same_v<T, PutQueues>) {
          return put(keys_.Under("queues"), Encode(op.queues));
        } else if constexpr (std::is_same_v<T, PutUsers>) {
          return put(keys_.Under("users"), Encode(op.users));
        } else if constexpr (std::is_same_v<T, AppendAudit>) {
          AddLine(op, changes);
        } else if constexpr (std::is_same_v<T, PutSecret>) {
          return put(keys_.Secret(op.secret.secret), Encode(op.secret));
        } else if constexpr (std::is_same_v<T, DeleteSecret>) {
          return erase(keys_.Secret(op.secret));
        } else if constexpr (requires { AddFigures(keys_, op, changes); }) {
          AddFigures(keys_, op, changes);
        } else {
          static_assert(std::is_same_v<T, AppendEvent>);
          AddEvent(op.event, changes);
        }
        return OkStatus();
      },
      operation);
}

void EtcdStore::AddJob(const JobRecord& job, EtcdChanges* changes) {
  const std::string folder = keys_.OfJob(job.id);
  (*changes)[folder + "record"] = RecordWithoutSpec(job);
  std::uint64_t& stored = specs_[job.id];
  const std::uint64_t print = TextPrint(job.spec_yaml);
  if (stored == print) return;
  stored = print;
  (*changes)[folder + "spec"] = job.spec_yaml;
}

void EtcdStore::AddLine(const AppendAudit& op, EtcdChanges* changes) {
  newest_audit_ = op.seq;
  if (oldest_audit_ == 0) oldest_audit_ = op.seq;
  (*changes)[keys_.Numbered("audit/", op.seq)] = op.line;
}

void EtcdStore::AddEvent(const EventRecord& event, EtcdChanges* changes) {
  std::string text = Encode(event);
  (*changes)[keys_.Numbered("events/", event.seq)] = text;
  if (oldest_event_ == 0) oldest_event_ = event.seq;
  events_[event.seq] = {event.job, std::move(text)};
}

// What is stored, with these changes.
Result<std::vector<EtcdEntry>> EtcdStore::EntriesUnder(const std::string& prefix,
                                                       const EtcdChanges& changes) {
  std::map<std::string, EtcdEntry> entries;
  EtcdReader reader(*client_);
  MUSTER_RETURN_IF_ERROR(
      reader.Read(prefix, EtcdPrefixEnd(prefix), [&entries](EtcdEntry entry) -> Status {
        std::string key = entry.key;
        entries[std::move(key)] = std::move(entry);
        return OkStatus();
      }));
  for (auto it = changes.lower_bound(prefix); it != changes.end() && it->first.starts_with(prefix);
       ++it) {
    EtcdEntry& entry = entries[it->first];
    entry.key = it->first;
    if (it->second) entry.value = *it->second;
    if (!it->second) entries.erase(it->first);
  }
  std::vector<EtcdEntry> out;
  for (auto& [key, entry] : entries) out.push_back(std::move(entry));
  return out;
}

Status EtcdStore::Archive(const ArchivedJob& job, EtcdChanges* changes) {
  const std::string from = keys_.OfJob(job.id);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<EtcdEntry> entries, EntriesUnder(from, *changes));
  MUSTER_ASSIGN_OR_RETURN(const ArchivedRecords records, RecordsOf(from, entries));
  if (records.job.id.empty()) return OkStatus();  // there is none
  for (const EtcdEntry& entry : entries) (*changes)[entry.key] = std::nullopt;
  specs_.erase(job.id);
  return archive_.Add(job, records);
}

// A failure of what is done here is that of the next commit, or harmless.
void EtcdStore::AfterGroup() {
  Prune();
  Compact();
}

// What is above the numbers to keep, as far as it was exported.
void EtcdStore::Prune() {
  const std::uint64_t newest_event = events_.empty() ? 0 : events_.rbegin()->first;
  const auto due = [](std::uint64_t newest, std::uint64_t kept, std::uint64_t oldest) {
    return newest >= kept + oldest + kPrunedAtOnce - 1;
  };
  const TimePoint now = SystemClock().Now();
  if (now < next_prune_ || (!due(newest_event, options_.kept_events, oldest_event_) &&
                            !due(newest_audit_, options_.kept_audit, oldest_audit_)))
    return;
  EtcdExported exported{newest_audit_, newest_event};
  if (options_.exports > 0) {
    next_prune_ = now + kPruneRetry;
    const auto read = ReadExported(*client_, keys_, options_.exports);
    if (!read.ok()) return;
    exported = *read;
  }
  const auto prune = [this](const char* folder, std::uint64_t newest, std::uint64_t kept,
                            std::uint64_t may_go, std::uint64_t* oldest) {
    const std::uint64_t above = newest > kept ? newest - kept + 1 : 0;
    const std::uint64_t first_kept = std::min(above, may_go + 1);
    if (first_kept < *oldest + kPrunedAtOnce) return false;
    if (!writer_.DeleteRange(keys_.Numbered(folder, 0), keys_.Numbered(folder, first_kept)).ok())
      return false;
    *oldest = first_kept;
    return true;
  };
  if (prune("events/", newest_event, options_.kept_events, exported.events, &oldest_event_))
    events_.erase(events_.begin(), events_.lower_bound(oldest_event_));
  prune("audit/", newest_audit_, options_.kept_audit, exported.audit, &oldest_audit_);
}

// What keys were more than a period ago is forgotten. Many changes make the period shorter.
void EtcdStore::Compact() {
  const TimePoint now = SystemClock().Now();
  if (now < next_compaction_ && writer_.bytes() - compacted_bytes_ < kHistoryBytes) return;
  next_compaction_ = now + options_.compaction;
  compacted_bytes_ = writer_.bytes();
  const std::int64_t to = std::exchange(compact_to_, writer_.revision());
  if (to > 0) (void)client_->Compact(to, kCompactAnswer);
}

Result<std::vector<EventRecord>> EtcdStore::SelectEvents(const EventQuery& query) {
  std::vector<EventRecord> found;
  for (auto it = events_.upper_bound(query.after_seq);
       it != events_.end() && static_cast<int>(found.size()) < query.limit; ++it) {
    if (!query.job.empty() && it->second.job != query.job) continue;
    MUSTER_ASSIGN_OR_RETURN(EventRecord event, Decode<EventRecord>(it->second.text));
    found.push_back(std::move(event));
  }
  return found;
}

Result<std::vector<ArchivedRecords>> EtcdStore::SelectArchived(const ArchiveQuery& query) {
  MUSTER_RETURN_IF_ERROR(writer_.Settle());
  return archive_.Select(query);
}

Result<std::vector<std::string>> EtcdStore::SelectAudit(const AuditQuery& query) {
  MUSTER_RETURN_IF_ERROR(writer_.Settle());
  std::vector<std::string> lines;
  const std::uint64_t first = std::max(query.after_seq + 1, oldest_audit_);
  const std::uint64_t end =
      std::min(newest_audit_ + 1, first + static_cast<std::uint64_t>(query.limit));
  if (first >= end) return lines;
  MUSTER_RETURN_IF_ERROR(EtcdReader(*client_).Read(keys_.Numbered("audit/", first),
                                                   keys_.Numbered("audit/", end),
                                                   [&lines](EtcdEntry entry) -> Status {
                                                     lines.push_back(std::move(entry.value));
                                                     return OkStatus();
                                                   }));
  return lines;
}

}  // namespace muster
