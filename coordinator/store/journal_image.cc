#include "coordinator/store/journal_image.h"

#include <iterator>

#include "coordinator/store/journal_format.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/records_of_jobs.h"

namespace muster {
namespace {

using Kind = JournalOperation::Kind;

template <typename T>
Status DecodeInto(const std::string& text, const std::string& what, std::vector<T>* into) {
  Result<T> record = Decode<T>(text);
  if (!record.ok()) return record.status().WithContext(what);
  into->push_back(*std::move(record));
  return OkStatus();
}

}  // namespace

Status JournalImage::Apply(std::string_view payload) {
  return ForEachOperation(payload, [this](const JournalOperation& op) { Apply(op); });
}

void JournalImage::Apply(const JournalOperation& op) {
  const std::string key(op.key);
  const std::string name(op.name);
  std::string text(op.text);
  switch (op.kind) {
    case Kind::kPutJob: jobs_[key] = std::move(text); break;
    case Kind::kPutAttempt: attempts_[{key, op.number}] = std::move(text); break;
    case Kind::kPutCheckpoint: checkpoints_[{key, name}] = std::move(text); break;
    case Kind::kDeleteCheckpoint: checkpoints_.erase({key, name}); break;
    case Kind::kPutNode: nodes_[key] = std::move(text); break;
    case Kind::kAppendEvent:
      events_[op.number] = Event{key, std::move(text)};
      while (events_.size() > kept_events_) events_.erase(events_.begin());
      break;
    case Kind::kBeginEpoch: begins_[op.number] = std::move(text); break;
    case Kind::kDeleteNode: nodes_.erase(key); break;
    case Kind::kArchiveJob: Archive(key, std::move(text)); break;
    case Kind::kDeleteArchived: archive_.erase(key); break;
    case Kind::kPutArchivedTime: archived_time_ = std::move(text); break;
    case Kind::kPutQueues: queues_ = std::move(text); break;
    case Kind::kPutUsers: users_ = std::move(text); break;
    case Kind::kAppendAudit:
      audit_[op.number] = std::move(text);
      while (audit_.size() > kept_events_) audit_.erase(audit_.begin());
      break;
    case Kind::kPutSecret: secrets_[{key, name}] = std::move(text); break;
    case Kind::kDeleteSecret: secrets_.erase({key, name}); break;
    case Kind::kPutQueueUsage: queue_usage_[key] = std::move(text); break;
    case Kind::kDeleteQueueUsage: queue_usage_.erase(key); break;
    case Kind::kPutQueueDay: queue_days_[{key, op.number}] = std::move(text); break;
    case Kind::kDeleteQueueDay: queue_days_.erase({key, op.number}); break;
    case Kind::kPutArchivedJob:
    case Kind::kPutArchivedCheckpoint:
      if (std::string* old = FindArchived(op)) *old = std::move(text);
      break;
  }
}

// The text that the operation replaces; nullptr: there is none.
std::string* JournalImage::FindArchived(const JournalOperation& op) {
  const auto job = archive_.find(op.key);
  if (job == archive_.end()) return nullptr;
  if (op.kind == Kind::kPutArchivedJob) return &job->second.job;
  const auto checkpoint = job->second.checkpoints.find(op.name);
  return checkpoint == job->second.checkpoints.end() ? nullptr : &checkpoint->second;
}

void JournalImage::Archive(const std::string& job, std::string index) {
  ArchivedTexts& to = archive_[job];
  to.index = std::move(index);
  if (auto record = jobs_.extract(job)) to.job = std::move(record.mapped());
  for (auto at = attempts_.lower_bound({job, 0});
       at != attempts_.end() && at->first.first == job;) {
    to.attempts[at->first.second] = std::move(at->second);
    at = attempts_.erase(at);
  }
  for (auto at = checkpoints_.lower_bound({job, {}});
       at != checkpoints_.end() && at->first.first == job;) {
    to.checkpoints[at->first.second] = std::move(at->second);
    at = checkpoints_.erase(at);
  }
}

// As the operations came: the records first, then that they are archived.
void JournalImage::AppendArchive(std::string* payload) const {
  for (const auto& [key, texts] : archive_) {
    AppendOperation({Kind::kPutJob, 0, key, {}, texts.job}, payload);
    for (const auto& [generation, text] : texts.attempts)
      AppendOperation({Kind::kPutAttempt, generation, key, {}, text}, payload);
    for (const auto& [directory, text] : texts.checkpoints)
      AppendOperation({Kind::kPutCheckpoint, 0, key, directory, text}, payload);
    AppendOperation({Kind::kArchiveJob, 0, key, {}, texts.index}, payload);
  }
  if (!archived_time_.empty())
    AppendOperation({Kind::kPutArchivedTime, 0, {}, {}, archived_time_}, payload);
}

std::string JournalImage::Snapshot() const {
  std::string payload;
  AppendArchive(&payload);
  for (const auto& [key, text] : jobs_) {
    AppendOperation({Kind::kPutJob, 0, key, {}, text}, &payload);
  }
  for (const auto& [key, text] : attempts_) {
    AppendOperation({Kind::kPutAttempt, key.second, key.first, {}, text}, &payload);
  }
  for (const auto& [key, text] : checkpoints_) {
    AppendOperation({Kind::kPutCheckpoint, 0, key.first, key.second, text}, &payload);
  }
  for (const auto& [key, text] : nodes_) {
    AppendOperation({Kind::kPutNode, 0, key, {}, text}, &payload);
  }
  if (!queues_.empty()) AppendOperation({Kind::kPutQueues, 0, {}, {}, queues_}, &payload);
  if (!users_.empty()) AppendOperation({Kind::kPutUsers, 0, {}, {}, users_}, &payload);
  for (const auto& [key, text] : secrets_) {
    AppendOperation({Kind::kPutSecret, 0, key.first, key.second, text}, &payload);
  }
  for (const auto& [queue, text] : queue_usage_) {
    AppendOperation({Kind::kPutQueueUsage, 0, queue, {}, text}, &payload);
  }
  for (const auto& [key, text] : queue_days_) {
    AppendOperation({Kind::kPutQueueDay, key.second, key.first, {}, text}, &payload);
  }
  for (const auto& [seq, event] : events_) {
    AppendOperation({Kind::kAppendEvent, seq, event.job, {}, event.text}, &payload);
  }
  for (const auto& [seq, line] : audit_) {
    AppendOperation({Kind::kAppendAudit, seq, {}, {}, line}, &payload);
  }
  for (const auto& [number, claim] : begins_) {
    AppendOperation({Kind::kBeginEpoch, number, {}, {}, claim}, &payload);
  }
  return payload;
}

Result<StoredState> JournalImage::Load(std::size_t newest_events) const {
  StoredState state;
  for (const auto& [key, text] : jobs_) {
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, "job " + key, &state.jobs));
  }
  for (const auto& [key, text] : attempts_) {
    const std::string what = "attempt " + std::to_string(key.second) + " of job " + key.first;
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, what, &state.attempts));
  }
  for (const auto& [key, text] : checkpoints_) {
    const std::string what = "checkpoint " + key.second + " of job " + key.first;
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, what, &state.checkpoints));
  }
  for (const auto& [key, text] : nodes_) {
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, "node " + key, &state.nodes));
  }
  for (const auto& [key, texts] : archive_) {
    MUSTER_RETURN_IF_ERROR(DecodeInto(texts.index, "archived job " + key, &state.archived));
  }
  std::vector<GoodputUsage> time;
  if (!archived_time_.empty())
    MUSTER_RETURN_IF_ERROR(DecodeInto(archived_time_, "the time of archived jobs", &time));
  if (!time.empty()) state.archived_time = time.front().micros;
  MUSTER_RETURN_IF_ERROR(LoadQueues(&state));
  MUSTER_RETURN_IF_ERROR(LoadUsers(&state));
  auto event = events_.begin();
  if (events_.size() > newest_events) std::advance(event, events_.size() - newest_events);
  for (; event != events_.end(); ++event) {
    const std::string what = "event " + std::to_string(event->first);
    MUSTER_RETURN_IF_ERROR(DecodeInto(event->second.text, what, &state.events));
  }
  return state;
}

Status JournalImage::LoadQueues(StoredState* state) const {
  std::vector<QueuesRecord> queues;
  if (!queues_.empty()) MUSTER_RETURN_IF_ERROR(DecodeInto(queues_, "the queues", &queues));
  if (!queues.empty()) state->queues = std::move(queues.front());
  std::vector<QueueUsageRecord> usage;
  for (const auto& [queue, text] : queue_usage_)
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, "the usage of queue " + queue, &usage));
  for (const QueueUsageRecord& each : usage) state->queue_usage[each.queue] = each.usage;
  for (const auto& [key, text] : queue_days_)
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, "a day of queue " + key.first, &state->queue_days));
  return OkStatus();
}

Status JournalImage::LoadUsers(StoredState* state) const {
  std::vector<UsersRecord> users;
  if (!users_.empty()) MUSTER_RETURN_IF_ERROR(DecodeInto(users_, "the users", &users));
  if (!users.empty()) state->users = std::move(users.front());
  for (const auto& [key, text] : secrets_)
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, "a secret of " + key.first, &state->secrets));
  if (audit_.empty()) return OkStatus();
  MUSTER_ASSIGN_OR_RETURN(state->audit, AuditHeadOf(audit_.rbegin()->second));
  return OkStatus();
}

std::vector<std::string> JournalImage::SelectAudit(const AuditQuery& query) const {
  std::vector<std::string> found;
  for (auto it = audit_.upper_bound(query.after_seq);
       it != audit_.end() && static_cast<int>(found.size()) < query.limit; ++it)
    found.push_back(it->second);
  return found;
}

Result<std::vector<EventRecord>> JournalImage::SelectEvents(const EventQuery& query) const {
  std::vector<EventRecord> found;
  for (auto it = events_.upper_bound(query.after_seq);
       it != events_.end() && static_cast<int>(found.size()) < query.limit; ++it) {
    if (!query.job.empty() && it->second.job != query.job.value) continue;
    const std::string what = "event " + std::to_string(it->first);
    MUSTER_RETURN_IF_ERROR(DecodeInto(it->second.text, what, &found));
  }
  return found;
}

// Only records whose text has the field are parsed: the archive may have many thousands. An empty
// one is not written.
Result<RecordsOfJobs> JournalImage::ArchivedWith(std::string JobRecord::*field,
                                                 std::string_view name,
                                                 const std::string& value) const {
  const std::string part = EncodeField(name, value);
  RecordsOfJobs found;
  for (const auto& [key, texts] : archive_) {
    if (!value.empty() && texts.job.find(part) == std::string::npos) continue;
    MUSTER_ASSIGN_OR_RETURN(JobRecord job, Decode<JobRecord>(texts.job));
    if (job.*field == value) found[JobId{key}].job = std::move(job);
  }
  return found;
}

Result<std::vector<ArchivedRecords>> JournalImage::SelectPage(const ArchiveQuery& query) const {
  RecordsOfJobs all;
  for (const auto& [key, texts] : archive_) {
    MUSTER_ASSIGN_OR_RETURN(all[JobId{key}].job, Decode<JobRecord>(texts.job));
  }
  return Select(all, query);
}

Result<std::vector<ArchivedRecords>> JournalImage::SelectArchived(const ArchiveQuery& query) const {
  if (query.is_page()) return SelectPage(query);
  RecordsOfJobs chosen;
  if (query.job.empty()) {
    MUSTER_ASSIGN_OR_RETURN(chosen, ArchivedWith(&JobRecord::name, "name", query.name));
  } else if (const auto at = archive_.find(query.job.value); at != archive_.end()) {
    MUSTER_ASSIGN_OR_RETURN(chosen[query.job].job, Decode<JobRecord>(at->second.job));
  }
  const std::vector<ArchivedRecords> found = Select(chosen, query);
  if (found.empty()) return found;
  const JobRecord& job = found.front().job;
  MUSTER_ASSIGN_OR_RETURN(chosen,
                          ArchivedWith(&JobRecord::output_dir, "output_dir", job.output_dir));
  ArchivedRecords& only = chosen[job.id];
  const ArchivedTexts& texts = archive_.find(job.id.value)->second;
  for (const auto& [generation, text] : texts.attempts)
    MUSTER_RETURN_IF_ERROR(DecodeInto(text, "attempt of job " + job.id.value, &only.attempts));
  for (const auto& [directory, text] : texts.checkpoints)
    MUSTER_RETURN_IF_ERROR(
        DecodeInto(text, "checkpoint of job " + job.id.value, &only.checkpoints));
  return Select(chosen, {.job = job.id});
}

}  // namespace muster
