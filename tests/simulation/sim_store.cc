#include "tests/simulation/sim_store.h"

#include <type_traits>
#include <utility>
#include <variant>

#include "common/base/check.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kEventsKept = 2000;
constexpr std::uint64_t kSnapshotCommits = 64;  // few, so that short runs replace commits too

}  // namespace

SimStore::SimStore(EventQueue& queue, Random& random) : queue_(queue), random_(random) { Open(); }

void SimStore::Open() {
  JournalStoreOptions options{
      .journal = {.dir = "/journal", .node = "coordinator"}, .files = disk_, .own_thread = false};
  options.journal.kept_events = kEventsKept;
  options.journal.snapshot_commits = kSnapshotCommits;
  journal_.reset();
  Result<std::unique_ptr<JournalStore>> journal = JournalStore::Open(std::move(options));
  MUSTER_CHECK(journal.ok(), journal.status().ToString());
  journal_ = *std::move(journal);
  disk_->Settle();
  Result<StoredState> loaded = journal_->Load();
  MUSTER_CHECK(loaded.ok(), loaded.status().ToString());
  loaded_ = *std::move(loaded);
  jobs_.clear();
  checkpoints_.clear();
  for (const JobRecord& job : loaded_.jobs) Note(PutJob{job});
  for (const CheckpointRecord& checkpoint : loaded_.checkpoints) Note(PutCheckpoint{checkpoint});
  for (const ArchivedJob& job : loaded_.archived) {
    journal_->ReadArchive({.job = job.id}, [this](Result<std::vector<ArchivedRecords>> records) {
      MUSTER_CHECK(records.ok() && records->size() == 1, records.status().ToString());
      Note(PutJob{records->front().job});
    });
    journal_->RunOnce();
  }
  ReadAuditAgain();
}

void SimStore::ReadAuditAgain() {
  audit_ = AuditVerifier();
  std::uint64_t after = 0;
  for (bool more = true; more;) {
    journal_->ReadAudit({.after_seq = after}, [&](Result<std::vector<std::string>> lines) {
      MUSTER_CHECK(lines.ok(), lines.status().ToString());
      more = !lines->empty();
      if (more) after = AuditHeadOf(lines->back()).value().seq;
      for (std::string& line : *lines) Note(AppendAudit{0, std::move(line)});
    });
    journal_->RunOnce();
  }
}

Status SimStore::CheckAudit() const {
  if (!audit_broken_.ok()) return audit_broken_;
  for (const auto& [id, job] : jobs_)
    if (!submitted_.contains("job " + id.value))
      return DataLoss("job " + id.value + " has no entry of its submit");
  return OkStatus();
}

Result<StoredState> SimStore::Load() { return std::exchange(loaded_, {}); }

Duration SimStore::Latency() {
  if (queue_.now() < slow_until_) return random_.Delay(milliseconds(50), milliseconds(400));
  if (random_.Chance(0.02)) return random_.Delay(milliseconds(5), milliseconds(60));
  return random_.Delay(microseconds(150), microseconds(1500));
}

void SimStore::Commit(std::vector<StoreOperation> operations, Done done) {
  waiting_.push_back({std::move(operations), std::move(done)});
  if (!writing_) BeginGroup();
}

// What comes from now on waits for the next group.
void SimStore::BeginGroup() {
  writing_ = true;
  for (CommitBatch& batch : std::exchange(waiting_, {})) {
    std::vector<StoreOperation> operations = batch.operations;
    journal_->Commit(std::move(batch.operations),
                     [this, operations = std::move(operations),
                      done = std::move(batch.done)](const Status& status) {
                       if (status.ok())
                         for (const StoreOperation& operation : operations) Note(operation);
                       done(status);
                     });
  }
  for (ArchiveRead& read : std::exchange(waiting_reads_, {})) {
    ++reads_;
    journal_->ReadArchive(std::move(read.query),
                          [this, life = life_, done = std::move(read.done)](auto records) {
                            if (life != life_) return;
                            --reads_;
                            done(std::move(records));
                          });
  }
  queue_.After(Latency(), [this, life = life_] {
    if (life == life_) FinishGroup();
  });
}

void SimStore::FinishGroup() {
  do {
    journal_->RunOnce();
  } while (reads_ > 0);
  disk_->Settle();
  writing_ = false;
  if (!waiting_.empty() || !waiting_reads_.empty()) BeginGroup();
}

void SimStore::Crash() {
  ++life_;
  waiting_.clear();
  waiting_reads_.clear();
  reads_ = 0;
  if (std::exchange(writing_, false)) {
    journal_->RunOnce();
    disk_->CutPower(random_);
  }
  disk_->FailNext(false);
  Open();
}

void SimStore::ReadEvents(EventQuery query, EventsDone done) {
  journal_->ReadEvents(std::move(query), std::move(done));
}

void SimStore::ReadAudit(AuditQuery query, AuditDone done) {
  journal_->ReadAudit(query, std::move(done));
}

void SimStore::ReadArchive(ArchiveQuery query, ArchiveDone done) {
  waiting_reads_.push_back({std::move(query), std::move(done)});
  if (!writing_) BeginGroup();
}

void SimStore::Note(const StoreOperation& operation) {
  std::visit(
      [this](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, PutJob>) {
          jobs_[op.job.id] = op.job;
        } else if constexpr (std::is_same_v<Op, PutCheckpoint>) {
          checkpoints_[op.checkpoint.job][op.checkpoint.directory] = op.checkpoint;
        } else if constexpr (std::is_same_v<Op, DeleteCheckpoint>) {
          checkpoints_[op.job].erase(op.directory);
        } else if constexpr (std::is_same_v<Op, ArchiveJob>) {
          checkpoints_.erase(op.job.id);
        } else if constexpr (std::is_same_v<Op, DeleteArchivedJob>) {
          jobs_.erase(op.job);
        } else if constexpr (std::is_same_v<Op, PutArchivedJob>) {
          jobs_[op.job.id] = op.job;
        } else if constexpr (std::is_same_v<Op, AppendAudit>) {
          if (audit_broken_.ok()) audit_broken_ = audit_.Add(op.line);
          const Result<AuditLine> line = ReadAuditLine(op.line);
          if (line.ok() && line->entry.operation == "Submit" && line->entry.outcome == "OK")
            submitted_.insert(line->entry.object);
        } else if constexpr (std::is_same_v<Op, PutQueueUsage>) {
          usage_.insert(op.queue);
        } else if constexpr (std::is_same_v<Op, PutArchivedCheckpoint>) {
          ++archive_scrubs_;
        }
      },
      operation);
}

const JobRecord* SimStore::FindJob(const JobId& id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

std::vector<CheckpointRecord> SimStore::Checkpoints(const JobId& job) const {
  std::vector<CheckpointRecord> found;
  const auto known = checkpoints_.find(job);
  if (known == checkpoints_.end()) return found;
  for (const auto& [directory, checkpoint] : known->second) found.push_back(checkpoint);
  return found;
}

std::uint64_t SimStore::Hash() const {
  std::uint64_t hash = Mix(1, journal_->groups());
  for (const auto& [id, job] : jobs_) {
    hash = Mix(hash, static_cast<std::uint64_t>(job.generation));
    hash = Mix(hash, static_cast<std::uint64_t>(job.state));
    hash = Mix(hash, static_cast<std::uint64_t>(job.committed_step));
  }
  return hash;
}

}  // namespace muster::sim
