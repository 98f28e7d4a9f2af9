#include "coordinator/backup/store_place.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "coordinator/store/journal_contents.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/sqlite_contents.h"

namespace muster {
namespace {

// More than a job has attempts in the time that a restore may go back.
constexpr Generation kSkippedGenerations = 1000;

// Above each epoch that a coordinator of the same cluster has had: they are counted by ones, or
// were raised like this.
std::uint64_t RaisedEpoch(std::uint64_t source, const StorePlace& to) {
  const Result<StoreContents> there = ReadStore(
      to, [](std::uint64_t) { return OkStatus(); });  // none, or not to be read: no matter
  const auto now = static_cast<std::uint64_t>(SystemClock().UnixMillis() / 1000);
  return std::max({source, there.ok() ? there->epoch : 0, now}) + 1;
}

Status Write(const StorePlace& place, const StoreContents& contents, IfNotEmpty if_not_empty,
             const RecordsProgress& progress) {
  switch (place.kind) {
    case StorePlace::Kind::kSqlite:
      return WriteSqliteStore(place.path, contents, if_not_empty, progress);
    case StorePlace::Kind::kJournal: return WriteJournalStore(place.path, contents);
    case StorePlace::Kind::kEtcd:
      return WriteEtcdStore(place.etcd, contents, if_not_empty, progress);
    case StorePlace::Kind::kBackup: return WriteBackup(place.path, contents);
  }
  return Internal("no such kind of store");
}

Status WriteStore(const StorePlace& place, const StoreContents& contents, IfNotEmpty if_not_empty,
                  const RecordsProgress& progress) {
  const Status status = Write(place, contents, if_not_empty, progress);
  // To clients this code means that no node has room for a job.
  return status.code() == StatusCode::kResourceExhausted ? Internal(status.message()) : status;
}

// Attempts since then had the next generations, and their processes may still be there.
Result<StoreContents> WithGenerationsSkipped(StoreContents contents) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<StoreOperation> operations, OperationsOf(contents));
  contents.payload.clear();
  for (StoreOperation& operation : operations) {
    if (auto* put = std::get_if<PutJob>(&operation); put && !IsTerminal(put->job.state)) {
      JobRecord& job = put->job;
      job.next_generation = std::max(job.next_generation, job.generation + kSkippedGenerations);
    }
    AppendOperation(operation, &contents.payload);
  }
  return contents;
}

// The contents of a store that has no coordinator, which changes nothing more.
Result<StoreContents> ReadLast(const StorePlace& place, const RecordsProgress& progress) {
  std::optional<LockedRecord> lock;
  std::error_code error;
  if (place.kind == StorePlace::Kind::kEtcd) {
    MUSTER_RETURN_IF_ERROR(CheckNoneLeads(place.etcd));
  } else if (place.kind == StorePlace::Kind::kJournal) {
    MUSTER_RETURN_IF_ERROR(FenceJournal(place.path));
  } else if (std::filesystem::exists(place.path, error)) {
    MUSTER_ASSIGN_OR_RETURN(lock, LockForWriting(place.path));
  }
  return ReadStore(place, progress);
}

}  // namespace

std::string StorePlace::Text() const {
  return kind == Kind::kEtcd ? etcd.prefix + " of etcd" : path;
}

Result<StoreContents> ReadStore(const StorePlace& place, const RecordsProgress& progress) {
  switch (place.kind) {
    case StorePlace::Kind::kSqlite: return ReadSqliteStore(place.path, progress);
    case StorePlace::Kind::kJournal: return ReadJournalStore(place.path);
    case StorePlace::Kind::kEtcd: return ReadEtcdStore(place.etcd, progress);
    case StorePlace::Kind::kBackup: return ReadBackup(place.path);
  }
  return Internal("no such kind of store");
}

Result<std::uint64_t> RestoreStore(StoreContents contents, const StorePlace& place,
                                   IfNotEmpty if_not_empty, const RecordsProgress& progress) {
  MUSTER_ASSIGN_OR_RETURN(contents, WithGenerationsSkipped(std::move(contents)));
  contents.epoch = RaisedEpoch(contents.epoch, place);
  MUSTER_RETURN_IF_ERROR(WriteStore(place, contents, if_not_empty, progress));
  return contents.epoch;
}

Result<std::uint64_t> MigrateStore(const StorePlace& from, const StorePlace& to,
                                   IfNotEmpty if_not_empty, const RecordsProgress& progress) {
  MUSTER_ASSIGN_OR_RETURN(StoreContents contents, ReadLast(from, progress));
  contents.epoch = RaisedEpoch(contents.epoch, to);
  MUSTER_RETURN_IF_ERROR(WriteStore(to, contents, if_not_empty, progress));
  return contents.epoch;
}

Result<ContentsSummary> Summarize(const StoreContents& contents) {
  ContentsSummary summary;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<StoreOperation> operations, OperationsOf(contents));
  for (const StoreOperation& operation : operations) {
    if (const auto* put = std::get_if<PutJob>(&operation)) {
      ++summary.jobs;
      if (!IsTerminal(put->job.state)) ++summary.live_jobs;
    } else if (std::holds_alternative<ArchiveJob>(operation)) {
      ++summary.archived;
      --summary.jobs;
    } else if (std::holds_alternative<PutNode>(operation)) {
      ++summary.nodes;
    } else if (std::holds_alternative<AppendEvent>(operation)) {
      ++summary.events;
    } else if (std::holds_alternative<AppendAudit>(operation)) {
      ++summary.audit;
    }
  }
  return summary;
}

}  // namespace muster
