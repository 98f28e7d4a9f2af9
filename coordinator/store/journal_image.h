// JournalImage: the state that a journal's commits add up to, as the texts of its records.
//
// Owned by a Journal; one thread at a time. Texts stay as they were written until the records are
// needed, so that replaying and writing snapshots cost no parsing. The newest `kept_events` events
// are kept, and as many lines of the audit trail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "coordinator/control/effects.h"
#include "coordinator/store/records_of_jobs.h"
#include "coordinator/store/store.h"

namespace muster {

struct JournalOperation;

class JournalImage {
 public:
  explicit JournalImage(std::size_t kept_events) : kept_events_(kept_events) {}

  // Takes over the operations of a payload; after a failure the image is unusable.
  Status Apply(std::string_view payload);
  // The payload that makes this image out of an empty one.
  std::string Snapshot() const;

  // All records, with the newest `newest_events` of the events. kDataLoss names an unreadable
  // record.
  Result<StoredState> Load(std::size_t newest_events) const;
  Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) const;
  Result<std::vector<ArchivedRecords>> SelectArchived(const ArchiveQuery& query) const;
  std::vector<std::string> SelectAudit(const AuditQuery& query) const;

  // Whether this commit began an epoch. Such commits' files are kept for good.
  bool BeganEpoch(std::uint64_t number) const { return begins_.contains(number); }

 private:
  struct Event {
    std::string job;
    std::string text;
  };
  // The texts of an archived job. They stay in memory and in snapshots until they are deleted.
  struct ArchivedTexts {
    std::string index;  // an ArchivedJob
    std::string job;
    std::map<std::uint64_t, std::string> attempts;                // by generation
    std::map<std::string, std::string, std::less<>> checkpoints;  // by directory
  };
  void Apply(const JournalOperation& operation);
  void Archive(const std::string& job, std::string index);
  std::string* FindArchived(const JournalOperation& operation);
  Result<RecordsOfJobs> ArchivedWith(std::string JobRecord::*field, std::string_view name,
                                     const std::string& value) const;
  Result<std::vector<ArchivedRecords>> SelectPage(const ArchiveQuery& query) const;
  void AppendArchive(std::string* payload) const;
  Status LoadQueues(StoredState* state) const;
  Status LoadUsers(StoredState* state) const;

  std::size_t kept_events_;
  std::map<std::string, std::string, std::less<>> jobs_;
  std::map<std::string, std::string, std::less<>> nodes_;
  std::map<std::pair<std::string, std::uint64_t>, std::string> attempts_;
  std::map<std::pair<std::string, std::string>, std::string> checkpoints_;
  std::map<std::string, ArchivedTexts, std::less<>> archive_;
  std::string archived_time_;                                           // empty: none
  std::string queues_;                                                  // empty: none
  std::string users_;                                                   // empty: none
  std::map<std::uint64_t, std::string> audit_;                          // lines by seq
  std::map<std::pair<std::string, std::string>, std::string> secrets_;  // by owner, QUEUE/NAME
  std::map<std::string, std::string> queue_usage_;
  std::map<std::pair<std::string, std::uint64_t>, std::string> queue_days_;
  std::map<std::uint64_t, Event> events_;        // by seq
  std::map<std::uint64_t, std::string> begins_;  // claims by number of commit
};

}  // namespace muster
