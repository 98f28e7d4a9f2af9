// What every Store must do, run against each of them.
#include "coordinator/store/store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "common/base/testing/temp_dir.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/journal_store.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/testing/etcd_server.h"
#include "coordinator/store/testing/memory_store.h"
#include "tests/simulation/sim_store.h"

namespace muster {
namespace {

// One kind of store: where its content is, and how to open it, again and again.
class StoreKind {
 public:
  virtual ~StoreKind() = default;
  virtual Store& store() = 0;
  virtual void Reopen() = 0;
  // Makes some coming commit fail; with which code.
  virtual StatusCode Break() = 0;
  // Does what waits, where no thread does it.
  virtual void Work() {}
  // Newest events that are kept, at least.
  virtual std::uint64_t kept_events() const { return Store::kLoadedEvents; }
};

class MemoryKind : public StoreKind {
 public:
  Store& store() override { return store_; }
  void Reopen() override {}
  StatusCode Break() override {
    store_.FailNext(ResourceExhausted("full"));
    return StatusCode::kResourceExhausted;
  }

 private:
  MemoryStore store_;
};

class SqliteKind : public StoreKind {
 public:
  SqliteKind() { Open({}); }
  Store& store() override { return *store_; }
  void Reopen() override { Open({}); }
  StatusCode Break() override {
    Open({.max_pages = 1});
    return StatusCode::kResourceExhausted;
  }

 private:
  void Open(SqliteStoreOptions options) {
    store_.reset();
    options.path = dir_ / "state.db";
    auto opened = SqliteStore::Open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    store_ = *std::move(opened);
  }
  const TempDirForTest dir_;
  std::unique_ptr<SqliteStore> store_;
};

// Large files do not fit any more.
class FullDisk : public PosixJournalFiles {
 public:
  int Write(const std::string& path, std::string_view bytes) override {
    return bytes.size() > (1 << 16) ? ENOSPC : PosixJournalFiles::Write(path, bytes);
  }
};

class JournalKind : public StoreKind {
 public:
  JournalKind() { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() final { Open(std::make_shared<PosixJournalFiles>()); }
  StatusCode Break() override {
    Open(std::make_shared<FullDisk>());
    return StatusCode::kResourceExhausted;
  }

 private:
  void Open(std::shared_ptr<JournalFiles> files) {
    store_.reset();
    JournalStoreOptions options;
    options.journal = {.dir = dir_ / "journal", .node = "n1", .pid = 7};
    options.files = std::move(files);
    auto opened = JournalStore::Open(std::move(options));
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    store_ = *std::move(opened);
  }
  const TempDirForTest dir_;
  std::unique_ptr<JournalStore> store_;
};

class EtcdKind : public StoreKind {
 public:
  EtcdKind() { Reopen(); }
  Store& store() override { return *store_; }
  void Reopen() final {
    store_.reset();
    auto opened = EtcdStore::Open({.access = EtcdServerForTest::Shared().access(),
                                   .prefix = prefix_,
                                   .claim = {.node = "n1", .pid = 7},
                                   .lease_seconds = 30,
                                   .allow_unsafe = true});
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    store_ = *std::move(opened);
  }
  // It does not lead any more.
  StatusCode Break() override {
    etcdserverpb::TxnRequest request;
    *request.add_success() = EtcdDelete(prefix_ + kEtcdLeaderKey);
    EXPECT_TRUE(
        EtcdServerForTest::Shared().Client()->Transact(request, std::chrono::seconds(10)).ok());
    return StatusCode::kAborted;
  }

 private:
  const std::string prefix_ = EtcdServerForTest::NewPrefix();
  std::unique_ptr<EtcdStore> store_;
};

class SimKind : public StoreKind {
 public:
  Store& store() override { return store_; }
  void Reopen() override {
    Work();
    store_.Crash();
  }
  StatusCode Break() override {
    store_.FailNext(true);
    return StatusCode::kResourceExhausted;
  }
  void Work() override {
    // A page of a read is read after each group of commits.
    for (int pages = 0; pages < 16; ++pages) {
      store_.Commit({}, [](const Status&) {});
      while (queue_.RunOne()) {
      }
    }
  }
  std::uint64_t kept_events() const override { return 2000; }

 private:
  sim::EventQueue queue_;
  sim::Random random_{1};
  sim::SimStore store_{queue_, random_};
};

std::unique_ptr<StoreKind> MakeMemory() { return std::make_unique<MemoryKind>(); }
std::unique_ptr<StoreKind> MakeSqlite() { return std::make_unique<SqliteKind>(); }

std::unique_ptr<StoreKind> MakeJournal() { return std::make_unique<JournalKind>(); }
std::unique_ptr<StoreKind> MakeEtcd() { return std::make_unique<EtcdKind>(); }
std::unique_ptr<StoreKind> MakeSim() { return std::make_unique<SimKind>(); }

struct Factory {
  const char* name;
  std::unique_ptr<StoreKind> (*make)();
};

// So that a test is listed by its kind and not by the bytes of its parameter.
void PrintTo(const Factory& factory, std::ostream* out) { *out << factory.name; }

class StoreTest : public ::testing::TestWithParam<Factory> {
 protected:
  Store& store() { return kind_->store(); }

  Status Commit(std::vector<StoreOperation> operations) {
    std::promise<Status> done;
    store().Commit(std::move(operations), [&](const Status& status) { done.set_value(status); });
    kind_->Work();
    return done.get_future().get();
  }
  StoredState Load() {
    kind_->Reopen();
    auto state = store().Load();
    EXPECT_TRUE(state.ok()) << state.status().ToString();
    return state.ok() ? *std::move(state) : StoredState{};
  }
  std::vector<std::uint64_t> ReadSeqs(EventQuery query) {
    std::promise<std::vector<std::uint64_t>> done;
    store().ReadEvents(query, [&](Result<std::vector<EventRecord>> events) {
      std::vector<std::uint64_t> seqs;
      if (events.ok()) {
        for (const EventRecord& event : *events) seqs.push_back(event.seq);
      }
      done.set_value(seqs);
    });
    kind_->Work();
    return done.get_future().get();
  }

  std::vector<std::string> ReadAudit(AuditQuery query) {
    std::promise<std::vector<std::string>> done;
    store().ReadAudit(query, [&](Result<std::vector<std::string>> lines) {
      done.set_value(lines.ok() ? *std::move(lines) : std::vector<std::string>{"failed"});
    });
    kind_->Work();
    return done.get_future().get();
  }

  void CommitArchived(const std::string& id, std::uint64_t order);
  std::vector<ArchivedRecords> ReadArchive(ArchiveQuery query) {
    std::promise<std::vector<ArchivedRecords>> done;
    store().ReadArchive(std::move(query), [&](Result<std::vector<ArchivedRecords>> read) {
      EXPECT_TRUE(read.ok()) << read.status().ToString();
      done.set_value(read.ok() ? *std::move(read) : std::vector<ArchivedRecords>{});
    });
    kind_->Work();
    return done.get_future().get();
  }

  std::unique_ptr<StoreKind> kind_ = GetParam().make();
};

JobRecord Job(const std::string& id, JobState state = JobState::kQueued) {
  JobRecord job;
  job.id = JobId{id};
  job.state = state;
  return job;
}
AttemptRecord Attempt(const std::string& job, Generation generation) {
  AttemptRecord attempt;
  attempt.job = JobId{job};
  attempt.generation = generation;
  return attempt;
}
CheckpointRecord Checkpoint(const std::string& job, Step step) {
  CheckpointRecord checkpoint;
  checkpoint.job = JobId{job};
  checkpoint.step = step;
  checkpoint.directory = "step-" + std::to_string(step);
  return checkpoint;
}
EventRecord StoredEvent(std::uint64_t seq, const std::string& job) {
  EventRecord event;
  event.seq = seq;
  event.job = JobId{job};
  return event;
}

JobRecord Finished(const std::string& id, std::uint64_t submit_order) {
  JobRecord job = Job(id, JobState::kSucceeded);
  job.key = "key-" + id;
  job.name = "a \"job\"";
  job.output_dir = "/jobs/\u00fc out";
  job.spec_yaml = "name: " + id;
  job.submit_order = submit_order;
  job.ended_unix_ms = 1'700'000'000'000;
  return job;
}

// With two attempts and two checkpoints.
void StoreTest::CommitArchived(const std::string& id, std::uint64_t order) {
  const JobRecord job = Finished(id, order);
  ASSERT_TRUE(Commit({PutJob{job}, PutAttempt{Attempt(id, 1)}, PutAttempt{Attempt(id, 2)},
                      PutCheckpoint{Checkpoint(id, 10)}, PutCheckpoint{Checkpoint(id, 5)}})
                  .ok());
  ASSERT_TRUE(Commit({ArchiveJob{ArchivedJobOf(job)}}).ok());
}

TEST_P(StoreTest, IsEmptyAtFirst) {
  const StoredState state = Load();
  EXPECT_TRUE(state.jobs.empty());
  EXPECT_TRUE(state.nodes.empty());
  EXPECT_TRUE(state.events.empty());
}

TEST_P(StoreTest, KeepsEveryKindOfRecordAcrossReopening) {
  NodeRecord node;
  node.name = NodeName{"n1"};
  ASSERT_TRUE(Commit({PutJob{Job("a")}, PutAttempt{Attempt("a", 1)}, PutNode{node},
                      PutCheckpoint{Checkpoint("a", 5)}, AppendEvent{StoredEvent(1, "a")}})
                  .ok());
  const StoredState state = Load();
  EXPECT_EQ(state.jobs, std::vector{Job("a")});
  EXPECT_EQ(state.attempts, std::vector{Attempt("a", 1)});
  EXPECT_EQ(state.checkpoints, std::vector{Checkpoint("a", 5)});
  EXPECT_EQ(state.nodes, std::vector{node});
  EXPECT_EQ(state.events, std::vector{StoredEvent(1, "a")});
}

TEST_P(StoreTest, PutReplacesTheRecordOfTheSameKey) {
  ASSERT_TRUE(Commit({PutJob{Job("a")}, PutJob{Job("b")}}).ok());
  ASSERT_TRUE(Commit({PutJob{Job("a", JobState::kRunning)}, PutAttempt{Attempt("a", 1)}}).ok());
  ASSERT_TRUE(Commit({PutAttempt{Attempt("a", 2)}, PutAttempt{Attempt("a", 1)}}).ok());
  const StoredState state = Load();
  EXPECT_EQ(state.jobs, (std::vector{Job("a", JobState::kRunning), Job("b")}));
  EXPECT_EQ(state.attempts.size(), 2u);
}

TEST_P(StoreTest, DeletesOneCheckpoint) {
  ASSERT_TRUE(Commit({PutCheckpoint{Checkpoint("a", 5)}, PutCheckpoint{Checkpoint("a", 10)}}).ok());
  ASSERT_TRUE(Commit({DeleteCheckpoint{JobId{"a"}, "step-5"}}).ok());
  EXPECT_EQ(Load().checkpoints, std::vector{Checkpoint("a", 10)});
}

TEST_P(StoreTest, ReportsCommitsInOrder) {
  std::vector<int> order;
  std::promise<void> last;
  for (int i = 0; i < 100; ++i) {
    store().Commit({PutJob{Job("a")}}, [&, i](const Status&) {
      order.push_back(i);
      if (i == 99) last.set_value();
    });
  }
  kind_->Work();
  last.get_future().get();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
}

TEST_P(StoreTest, AnEmptyCommitIsDurableAtOnce) { EXPECT_TRUE(Commit({}).ok()); }

TEST_P(StoreTest, ReadsEventsAfterASequenceNumberOfOneJobOrAll) {
  std::vector<StoreOperation> operations;
  for (std::uint64_t seq = 1; seq <= 10; ++seq) {
    operations.push_back(AppendEvent{StoredEvent(seq, seq % 2 == 0 ? "even" : "odd")});
  }
  ASSERT_TRUE(Commit(std::move(operations)).ok());
  EXPECT_EQ(ReadSeqs({.job = {}, .after_seq = 7}), (std::vector<std::uint64_t>{8, 9, 10}));
  EXPECT_EQ(ReadSeqs({.job = JobId{"odd"}, .after_seq = 0, .limit = 2}),
            (std::vector<std::uint64_t>{1, 3}));
  EXPECT_TRUE(ReadSeqs({.job = JobId{"none"}}).empty());
}

TEST_P(StoreTest, ReadsMoreEventsThanFitOnAPage) {
  std::vector<StoreOperation> operations;
  for (std::uint64_t seq = 1; seq <= 2000; ++seq)
    operations.push_back(AppendEvent{StoredEvent(seq, seq % 2 == 0 ? "even" : "odd")});
  ASSERT_TRUE(Commit(std::move(operations)).ok());
  std::vector<std::uint64_t> expected;
  for (std::uint64_t seq = 101; expected.size() < 600; seq += 2) expected.push_back(seq);
  EXPECT_EQ(ReadSeqs({.job = JobId{"odd"}, .after_seq = 100, .limit = 600}), expected);
  EXPECT_EQ(ReadSeqs({.job = {}, .after_seq = 0, .limit = 3000}).size(), 2000u);
}

TEST_P(StoreTest, LoadsTheNewestEventsOldestFirst) {
  std::vector<StoreOperation> operations;
  for (std::uint64_t seq = 1; seq <= Store::kLoadedEvents + 5; ++seq) {
    operations.push_back(AppendEvent{StoredEvent(seq, "a")});
  }
  ASSERT_TRUE(Commit(std::move(operations)).ok());
  const StoredState state = Load();
  ASSERT_EQ(state.events.size(), kind_->kept_events());
  EXPECT_EQ(state.events.front().seq, Store::kLoadedEvents + 5u - kind_->kept_events() + 1);
  EXPECT_EQ(state.events.back().seq, Store::kLoadedEvents + 5u);
}

TEST_P(StoreTest, AFailedCommitLeavesNothingAndPoisonsTheStore) {
  ASSERT_TRUE(Commit({PutJob{Job("before")}}).ok());
  const StatusCode code = kind_->Break();
  JobRecord large = Job("large");
  large.spec_yaml.assign(1 << 20, 'x');
  const Status failed =
      Commit({PutJob{Job("with")}, AppendEvent{StoredEvent(1, "a")}, PutJob{large}});
  EXPECT_EQ(failed.code(), code) << failed.ToString();
  EXPECT_EQ(Commit({PutJob{Job("after")}}).code(), code);
  EXPECT_TRUE(ReadSeqs({}).empty()) << "an event was told that is not durable";
  EXPECT_EQ(Load().jobs, std::vector{Job("before")});
}

TEST_P(StoreTest, ForgetsANode) {
  NodeRecord node;
  node.name = NodeName{"n1"};
  ASSERT_TRUE(Commit({PutNode{node}}).ok());
  ASSERT_TRUE(Commit({DeleteNode{node.name}}).ok());
  EXPECT_TRUE(Load().nodes.empty());
}

TEST_P(StoreTest, KeepsTheQueuesAndTheirUsage) {
  EXPECT_EQ(Load().queues, QueuesRecord{});
  const QueuesRecord queues{2, "queues:\n  default: {}  # \"all\"\n"};
  ASSERT_TRUE(Commit({PutQueues{{1, "x"}}, PutQueueUsage{"a", 0.1}, PutQueueUsage{"b", 1}}).ok());
  ASSERT_TRUE(Commit({PutQueues{queues}, PutQueueUsage{"b", 1e300}, DeleteQueueUsage{"a"},
                      DeleteQueueUsage{"never"}})
                  .ok());
  for (int start = 0; start < 2; ++start) {
    const StoredState state = Load();
    EXPECT_EQ(state.queues, queues);
    EXPECT_EQ(state.queue_usage, (std::map<std::string, double>{{"b", 1e300}}));
  }
}

TEST_P(StoreTest, SecretsAreReplacedAndRemovedByOwnerQueueAndName) {
  const auto secret = [](const std::string& owner, const std::string& queue,
                         const std::string& value) {
    return SecretRecord{.secret = {owner, queue, "hf"},
                        .key_id = "k",
                        .own_key = "o",
                        .value = value,
                        .updated_unix_ms = 1,
                        .updated_by = "root"};
  };
  ASSERT_TRUE(Commit({PutSecret{secret("ada", "nlp", "1")}, PutSecret{secret("bob", "nlp", "2")},
                      PutSecret{secret("ada", "vision", "3")}})
                  .ok());
  ASSERT_TRUE(Commit({PutSecret{secret("ada", "nlp", "4")}, DeleteSecret{{"bob", "nlp", "hf"}},
                      DeleteSecret{{"ada", "nlp", "other"}}})
                  .ok());
  for (int start = 0; start < 2; ++start)
    EXPECT_THAT(Load().secrets, testing::UnorderedElementsAre(secret("ada", "nlp", "4"),
                                                              secret("ada", "vision", "3")));
}

TEST_P(StoreTest, KeepsTheUsers) {
  EXPECT_EQ(Load().users, UsersRecord{});
  const UsersRecord users{2, "users: {ada: }  # \"all\"\n"};
  ASSERT_TRUE(Commit({PutUsers{{1, "x"}}}).ok());
  ASSERT_TRUE(Commit({PutUsers{users}}).ok());
  for (int start = 0; start < 2; ++start) EXPECT_EQ(Load().users, users);
}

TEST_P(StoreTest, ContinuesTheAuditTrail) {
  EXPECT_EQ(Load().audit, AuditHead{});
  AuditHead head;
  std::vector<std::string> written;
  for (int start = 0; start < 3; ++start) {
    std::vector<StoreOperation> operations;
    for (int i = 0; i < 4; ++i) {
      written.push_back(SealAuditEntry({.operation = "Cancel", .object = "job"}, &head));
      operations.push_back(AppendAudit{head.seq, written.back()});
    }
    ASSERT_TRUE(Commit(std::move(operations)).ok());
    EXPECT_EQ(Load().audit, head);
  }
  EXPECT_EQ(ReadAudit({}), written);
  EXPECT_EQ(ReadAudit({.after_seq = 10}), (std::vector{written[10], written[11]}));
  EXPECT_EQ(ReadAudit({.after_seq = 3, .limit = 2}), (std::vector{written[3], written[4]}));
  EXPECT_EQ(ReadAudit({.after_seq = 12}), std::vector<std::string>{});
}

TEST_P(StoreTest, KeepsTheDaysOfQueues) {
  const QueueDayRecord day{.queue = "a",
                           .day = 20'000,
                           .gpus = {.productive = 1'000'000, .lost = 2},
                           .slots = {.productive = 3}};
  QueueDayRecord older = day;
  older.day = kOlderDays;
  ASSERT_TRUE(Commit({PutQueueDay{{"a", 20'000, {}, {.lost = 9}}},
                      PutQueueDay{{"b", 20'000, {}, {}}}, PutQueueDay{{"a", 19'999, {}, {}}}})
                  .ok());
  ASSERT_TRUE(Commit({PutQueueDay{day}, PutQueueDay{older}, DeleteQueueDay{"b", 20'000},
                      DeleteQueueDay{"a", 19'999}, DeleteQueueDay{"never", 1}})
                  .ok());
  for (int start = 0; start < 2; ++start)
    EXPECT_THAT(Load().queue_days, ::testing::UnorderedElementsAre(older, day));
}

TEST_P(StoreTest, AnArchivedJobIsNotLoadedAndCanBeReadWhole) {
  CommitArchived("a", 1);
  ASSERT_TRUE(
      Commit({PutJob{Job("live")}, PutAttempt{Attempt("live", 1)}, PutArchivedTime{{1, 2, 3}}})
          .ok());
  for (int start = 0; start < 2; ++start) {
    const StoredState state = Load();
    EXPECT_EQ(state.jobs, std::vector{Job("live")});
    EXPECT_EQ(state.attempts, std::vector{Attempt("live", 1)});
    EXPECT_TRUE(state.checkpoints.empty());
    EXPECT_EQ(state.archived, std::vector{ArchivedJobOf(Finished("a", 1))});
    EXPECT_EQ(state.archived_time, (RankMicros{1, 2, 3}));
    const std::vector<ArchivedRecords> read = ReadArchive({.job = JobId{"a"}});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].job, Finished("a", 1));
    EXPECT_EQ(read[0].attempts, (std::vector{Attempt("a", 1), Attempt("a", 2)}));
    EXPECT_EQ(read[0].checkpoints, (std::vector{Checkpoint("a", 5), Checkpoint("a", 10)}));
    EXPECT_TRUE(ReadArchive({.job = JobId{"live"}}).empty());
  }
}

TEST_P(StoreTest, ReadsTheArchiveByPagesWithTheNewestSubmissionFirst) {
  for (const auto& [id, order] : {std::pair("c", 1), std::pair("a", 2), std::pair("b", 3)})
    CommitArchived(id, static_cast<std::uint64_t>(order));
  const auto ids = [this](ArchiveQuery query) {
    std::string found;
    for (const ArchivedRecords& each : ReadArchive(std::move(query))) found += each.job.id.value;
    return found;
  };
  EXPECT_EQ(ids({.limit = 2}), "ba");
  EXPECT_EQ(ids({.before_order = 2, .limit = 2}), "c");
}

TEST_P(StoreTest, RecordsOfAnArchivedJobAreReplacedAndOthersAreNotMade) {
  CommitArchived("a", 1);
  JobRecord job = Finished("a", 1);
  job.scrub_trouble = "no node reads it";
  CheckpointRecord checkpoint = Checkpoint("a", 10);
  checkpoint.verified_unix_ms = 7;
  ASSERT_TRUE(Commit({PutArchivedJob{job}, PutArchivedCheckpoint{checkpoint},
                      PutArchivedCheckpoint{Checkpoint("a", 15)}, PutArchivedJob{Job("b")},
                      PutArchivedCheckpoint{Checkpoint("b", 5)}})
                  .ok());
  for (int start = 0; start < 2; ++start) {
    EXPECT_EQ(Load().archived, std::vector{ArchivedJobOf(job)});
    const std::vector<ArchivedRecords> read = ReadArchive({.job = JobId{"a"}});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].job, job);
    EXPECT_EQ(read[0].checkpoints, (std::vector{Checkpoint("a", 5), checkpoint}));
    EXPECT_TRUE(ReadArchive({.job = JobId{"b"}}).empty());
  }
}

TEST_P(StoreTest, FindsTheNewestArchivedJobOfANameAndOfAnOutputDirectory) {
  CommitArchived("c", 1);
  CommitArchived("a", 3);
  CommitArchived("b", 2);
  for (int start = 0; start < 2; ++start) {
    Load();
    const std::vector<ArchivedRecords> named = ReadArchive({.name = "a \"job\""});
    ASSERT_EQ(named.size(), 1u);
    EXPECT_EQ(named[0].job, Finished("a", 3));
    EXPECT_EQ(named[0].attempts.size(), 2u);
    for (const char* id : {"a", "b", "c"}) {
      const std::vector<ArchivedRecords> read = ReadArchive({.job = JobId{id}});
      ASSERT_EQ(read.size(), 1u);
      EXPECT_EQ(read[0].output_owner, JobId{"a"});
    }
    EXPECT_TRUE(ReadArchive({.name = "a"}).empty());
  }
  ASSERT_TRUE(Commit({DeleteArchivedJob{JobId{"a"}}}).ok());
  EXPECT_EQ(ReadArchive({.name = "a \"job\""}).at(0).output_owner, JobId{"b"});
}

TEST_P(StoreTest, DeletesAnArchivedJob) {
  CommitArchived("a", 1);
  CommitArchived("b", 2);
  ASSERT_TRUE(Commit({DeleteArchivedJob{JobId{"a"}}}).ok());
  EXPECT_EQ(Load().archived, std::vector{ArchivedJobOf(Finished("b", 2))});
  EXPECT_TRUE(ReadArchive({.job = JobId{"a"}}).empty());
}

TEST_P(StoreTest, KeepsAnArchiveOfManyJobs) {
  constexpr int kJobs = 200;
  const auto id = [](int number) { return std::to_string(1000 + number); };
  std::vector<StoreOperation> put, archive, remove;
  for (int i = 0; i < kJobs; ++i) {
    const JobRecord job = Finished(id(i), static_cast<std::uint64_t>(i + 1));
    put.push_back(PutJob{job});
    put.push_back(PutAttempt{Attempt(id(i), 1)});
    archive.push_back(ArchiveJob{ArchivedJobOf(job)});
    if (i % 2 == 0) remove.push_back(DeleteArchivedJob{job.id});
  }
  ASSERT_TRUE(Commit(std::move(put)).ok());
  ASSERT_TRUE(Commit(std::move(archive)).ok());
  EXPECT_EQ(Load().archived.size(), static_cast<std::size_t>(kJobs));
  ASSERT_TRUE(Commit(std::move(remove)).ok());
  EXPECT_EQ(Load().archived.size(), static_cast<std::size_t>(kJobs / 2));
  CommitArchived("new", kJobs + 1);
  EXPECT_TRUE(Load().jobs.empty());
  const std::vector<ArchivedRecords> page = ReadArchive({.limit = 30});
  ASSERT_EQ(page.size(), 30u);
  EXPECT_EQ(page[0].job.id, JobId{"new"});
  for (int i = 1; i < 30; ++i)
    EXPECT_EQ(page[static_cast<std::size_t>(i)].job.id, JobId{id(kJobs + 1 - 2 * i)});
  for (int i = 1; i < kJobs; i += 20) {
    const std::vector<ArchivedRecords> read = ReadArchive({.job = JobId{id(i)}});
    ASSERT_EQ(read.size(), 1u);
    EXPECT_EQ(read[0].job, Finished(id(i), static_cast<std::uint64_t>(i + 1)));
    EXPECT_EQ(read[0].attempts, std::vector{Attempt(id(i), 1)});
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTest,
                         ::testing::Values(Factory{"memory", MakeMemory},
                                           Factory{"sqlite", MakeSqlite},
                                           Factory{"journal", MakeJournal},
                                           Factory{"etcd", MakeEtcd},
                                           Factory{"simulated", MakeSim}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MemoryStoreTest, HeldCommitsWaitForTheirRelease) {
  MemoryStore store;
  store.Hold();
  bool done = false;
  store.Commit({PutJob{Job("a")}}, [&](const Status& status) { done = status.ok(); });
  EXPECT_FALSE(done);
  EXPECT_TRUE(store.Load()->jobs.empty());
  store.ReleaseHeld();
  EXPECT_TRUE(done);
  EXPECT_EQ(store.Load()->jobs.size(), 1u);
}

}  // namespace
}  // namespace muster
