#include "tests/simulation/sim_store.h"

#include <algorithm>

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::size_t kEventsKept = 2000;

template <typename Key, typename Record>
std::vector<Record> Values(const std::map<Key, Record>& map) {
  std::vector<Record> values;
  for (const auto& [key, record] : map) values.push_back(record);
  return values;
}

// The job's, in the order of generations or directories.
template <typename Key, typename Record>
std::vector<Record> Of(const JobId& job, const std::map<std::pair<JobId, Key>, Record>& map) {
  std::vector<Record> values;
  for (const auto& [key, record] : map)
    if (key.first == job) values.push_back(record);
  return values;
}

}  // namespace

Duration SimStore::Latency() {
  if (queue_.now() < slow_until_) return random_.Delay(milliseconds(50), milliseconds(400));
  if (random_.Chance(0.02)) return random_.Delay(milliseconds(5), milliseconds(60));
  return random_.Delay(microseconds(150), microseconds(1500));
}

void SimStore::Commit(std::vector<StoreOperation> operations, Done done) {
  pending_.push_back({std::move(operations), std::move(done)});
  last_due_ = std::max(last_due_, queue_.now() + Latency());
  queue_.At(last_due_, [this, life = life_] {
    if (life == life_) FinishFirst();
  });
}

void SimStore::FinishFirst() {
  Batch batch = std::move(pending_.front());
  pending_.pop_front();
  for (const StoreOperation& operation : batch.operations) Apply(operation);
  batch.done();
}

void SimStore::Crash() {
  ++life_;
  const int reached = random_.Pick(static_cast<int>(pending_.size()) + 1);
  for (int i = 0; i < reached; ++i) {
    for (const StoreOperation& operation : pending_[i].operations) Apply(operation);
  }
  pending_.clear();
}

void SimStore::Apply(const StoreOperation& operation) {
  std::visit(
      [this](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (std::is_same_v<Op, PutJob>) {
          jobs_[op.job.id] = op.job;
        } else if constexpr (std::is_same_v<Op, PutAttempt>) {
          attempts_[{op.attempt.job, op.attempt.generation}] = op.attempt;
        } else if constexpr (std::is_same_v<Op, PutCheckpoint>) {
          checkpoints_[{op.checkpoint.job, op.checkpoint.directory}] = op.checkpoint;
        } else if constexpr (std::is_same_v<Op, DeleteCheckpoint>) {
          checkpoints_.erase({op.job, op.directory});
        } else if constexpr (std::is_same_v<Op, PutNode>) {
          nodes_[op.node.name] = op.node;
        } else if constexpr (std::is_same_v<Op, DeleteNode>) {
          nodes_.erase(op.node);
        } else if constexpr (std::is_same_v<Op, ArchiveJob>) {
          const JobId& id = op.job.id;
          archive_[id] = {.job = jobs_.extract(id).mapped(),
                          .attempts = Of(id, attempts_),
                          .checkpoints = Of(id, checkpoints_),
                          .output_owner = id};  // each job has its own directory
          std::erase_if(attempts_, [&id](const auto& each) { return each.first.first == id; });
          std::erase_if(checkpoints_, [&id](const auto& each) { return each.first.first == id; });
        } else if constexpr (std::is_same_v<Op, DeleteArchivedJob>) {
          archive_.erase(op.job);
        } else if constexpr (std::is_same_v<Op, PutArchivedJob>) {
          if (archive_.contains(op.job.id)) archive_[op.job.id].job = op.job;
        } else if constexpr (std::is_same_v<Op, PutArchivedCheckpoint>) {
          ++archive_scrubs_;
          const auto job = archive_.find(op.checkpoint.job);
          if (job == archive_.end()) return;
          for (CheckpointRecord& each : job->second.checkpoints)
            if (each.directory == op.checkpoint.directory) each = op.checkpoint;
        } else if constexpr (std::is_same_v<Op, PutArchivedTime>) {
          archived_time_ = op.micros;
        } else {
          static_assert(std::is_same_v<Op, AppendEvent>);
          events_.push_back(op.event);
          if (events_.size() > kEventsKept) events_.pop_front();
        }
      },
      operation);
}

StoredState SimStore::Load() const {
  StoredState state{.jobs = Values(jobs_),
                    .attempts = Values(attempts_),
                    .checkpoints = Values(checkpoints_),
                    .nodes = Values(nodes_),
                    .events = {events_.begin(), events_.end()},
                    .archived_time = archived_time_};
  for (const auto& [id, records] : archive_) state.archived.push_back(ArchivedJobOf(records.job));
  return state;
}

const JobRecord* SimStore::FindJob(const JobId& id) const {
  const auto found = jobs_.find(id);
  if (found != jobs_.end()) return &found->second;
  const ArchivedRecords* archived = FindArchived(id);
  return archived == nullptr ? nullptr : &archived->job;
}

const ArchivedRecords* SimStore::FindArchived(const JobId& id) const {
  const auto found = archive_.find(id);
  return found == archive_.end() ? nullptr : &found->second;
}

std::vector<CheckpointRecord> SimStore::Checkpoints(const JobId& job) const {
  return Of(job, checkpoints_);
}

const NodeRecord* SimStore::FindNode(const NodeName& name) const {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

std::uint64_t SimStore::Hash() const {
  std::uint64_t hash = 1;
  for (const auto& [id, job] : jobs_) {
    hash = Mix(hash, static_cast<std::uint64_t>(job.generation));
    hash = Mix(hash, static_cast<std::uint64_t>(job.state));
    hash = Mix(hash, static_cast<std::uint64_t>(job.committed_step));
  }
  for (const auto& [name, node] : nodes_) hash = Mix(hash, static_cast<std::uint64_t>(node.state));
  return Mix(hash, events_.empty() ? 0 : events_.back().seq);
}

}  // namespace muster::sim
