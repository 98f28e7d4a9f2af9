#include "coordinator/store/commit_queue.h"

#include <pthread.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/failpoint.h"

namespace muster {

CommitQueue::CommitQueue(CommitBackend& backend, CommitQueueOptions options)
    : backend_(backend), options_(std::move(options)) {}

CommitQueue::~CommitQueue() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CommitQueue::Start() {
  thread_ = std::thread([this] { Run(); });
}

void CommitQueue::Commit(std::vector<StoreOperation> operations, Store::Done done) {
  Enqueue(CommitBatch{std::move(operations), std::move(done)});
}

void CommitQueue::ReadEvents(EventQuery query, Store::EventsDone done) {
  Enqueue(AnyRead(Read{std::move(query), std::move(done)}));
}

void CommitQueue::ReadArchive(ArchiveQuery query, Store::ArchiveDone done) {
  query.limit = std::min(query.limit, kPageArchived);
  Enqueue(AnyRead(ArchiveRead{std::move(query), std::move(done)}));
}

void CommitQueue::ReadAudit(AuditQuery query, Store::AuditDone done) {
  query.limit = std::min(query.limit, kPageAudit);
  Enqueue(AnyRead(AuditRead{query, std::move(done)}));
}

void CommitQueue::Enqueue(Work work) {
  {
    std::lock_guard lock(mutex_);
    if (auto* batch = std::get_if<CommitBatch>(&work)) {
      // A refused commit keeps its place, so that its result is reported in order.
      if (++commits_ > options_.max_queued) overflowed_ = true;
      if (overflowed_) batch->operations.clear();
    }
    queue_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void CommitQueue::Watch(Duration interval, Store::Done on_failure) {
  {
    std::lock_guard lock(mutex_);
    watch_interval_ = interval;
    on_failed_watch_ = std::move(on_failure);
  }
  changed_.notify_one();
}

CommitQueue::Next CommitQueue::AwaitWork() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return stopping_ || !queue_.empty(); };
  const auto watches = [this] { return poison_.ok() && watch_interval_ != Duration::max(); };
  if (reads_.empty()) {
    changed_.wait(lock, [&] { return ready() || watches(); });
    if (watches() && !changed_.wait_for(lock, watch_interval_, ready)) return Next::kWatch;
  }
  return queue_.empty() && reads_.empty() ? Next::kEnd : Next::kWork;
}

void CommitQueue::Run() {
  ::pthread_setname_np(::pthread_self(), "store");
  for (;;) {
    switch (AwaitWork()) {
      case Next::kWork: RunOnce(); break;
      case Next::kWatch: WatchOnce(); break;
      case Next::kEnd: return;
    }
  }
}

void CommitQueue::RunOnce() {
  std::vector<CommitBatch> group = TakeQueued();
  if (!group.empty()) CommitGroup(std::move(group));
  if (reads_.empty()) return;
  if (std::visit([this](auto& read) { return ReadPage(&read); }, reads_.front()))
    reads_.pop_front();
}

// The commits; reads wait for their turn.
std::vector<CommitBatch> CommitQueue::TakeQueued() {
  std::deque<Work> work;
  bool overflowed = false;
  {
    std::lock_guard lock(mutex_);
    work.swap(queue_);
    commits_ = 0;
    overflowed = overflowed_;
  }
  if (overflowed && poison_.ok()) {
    poison_ = ResourceExhausted("the disk of " + options_.path + " cannot keep up: " +
                                std::to_string(work.size()) + " commits wait");
  }
  std::vector<CommitBatch> group;
  for (Work& item : work) {
    if (auto* batch = std::get_if<CommitBatch>(&item)) {
      group.push_back(std::move(*batch));
    } else {
      reads_.push_back(std::move(std::get<AnyRead>(item)));
    }
  }
  return group;
}

// Whether that was the last page.
bool CommitQueue::ReadPage(Read* read) {
  // After a failure a read might see what is not durable.
  if (!poison_.ok()) {
    read->done(poison_);
    return true;
  }
  EventQuery page = read->query;
  page.limit = std::min(page.limit, kPageEvents);
  Result<std::vector<EventRecord>> events = backend_.SelectEvents(page);
  if (!events.ok()) {
    read->done(events.status());
    return true;
  }
  const int count = static_cast<int>(events->size());
  std::ranges::move(*events, std::back_inserter(read->found));
  read->query.limit -= count;
  if (count < page.limit || read->query.limit == 0) {
    read->done(std::move(read->found));
    return true;
  }
  read->query.after_seq = read->found.back().seq;
  return false;
}

bool CommitQueue::ReadPage(ArchiveRead* read) {
  if (poison_.ok()) {
    read->done(backend_.SelectArchived(read->query));
  } else {
    read->done(poison_);
  }
  return true;
}

bool CommitQueue::ReadPage(AuditRead* read) {
  if (poison_.ok()) {
    read->done(backend_.SelectAudit(read->query));
  } else {
    read->done(poison_);
  }
  return true;
}

void CommitQueue::CommitGroup(std::vector<CommitBatch> group) {
  if (poison_.ok()) {
    poison_ = backend_.WriteGroup(group).WithContext("write " + options_.path);
    ++groups_;
  }
  for (CommitBatch& batch : group) batch.done(poison_);
  Failpoint("store.reported");
  if (poison_.ok()) backend_.AfterGroup();
}

void CommitQueue::WatchOnce() {
  poison_ = backend_.Watch();
  if (poison_.ok()) return;
  Store::Done told;
  {
    std::lock_guard lock(mutex_);
    told = on_failed_watch_;
  }
  told(poison_);
}

}  // namespace muster
