#include "coordinator/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <string>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/testing/store_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

class SqliteStoreTest : public ::testing::Test {
 protected:
  std::string Path() const { return dir_ / "state.db"; }
  SqliteStoreOptions Options() const { return {.path = Path()}; }

  // A file as a version with that schema wrote it, which had no such tables.
  void MakeSchema(int schema, const std::string& drop_tables) {
    ASSERT_TRUE(SqliteStore::Open(Options()).ok());
    auto database = SqliteDatabase::Open(Path());
    ASSERT_TRUE(database.ok());
    const std::string version = std::to_string(schema);
    ASSERT_TRUE(
        database
            ->Execute(drop_tables + "; UPDATE meta SET value=" + version + " WHERE key='schema'")
            .ok());
  }
  static constexpr char kSinceSchema5[] = "DROP TABLE users; DROP TABLE audit; DROP TABLE secrets";

  static std::int64_t Number(const std::string& path, const std::string& query) {
    auto database = SqliteDatabase::Open(path);
    auto row = database->Prepare(query);
    EXPECT_TRUE(row.ok() && row->Next().ok()) << path << ": " << query;
    return row.ok() ? row->Int(0) : -1;
  }
  static std::int64_t SchemaOf(const std::string& path) {
    return Number(path, "SELECT value FROM meta WHERE key='schema'");
  }
  void PutJobs(int count) {
    auto store = SqliteStore::Open(Options());
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    for (int i = 0; i < count; ++i) {
      std::promise<Status> done;
      (*store)->Commit({PutJob{JobRecord{.id = JobId{std::to_string(i)}, .name = "a job"}}},
                       [&](const Status& status) { done.set_value(status); });
      ASSERT_TRUE(done.get_future().get().ok());
    }
  }

 private:
  const TempDirForTest dir_;
};

// No file of this process grows beyond so many bytes: a disk that is full.
class FullDiskForTest {
 public:
  explicit FullDiskForTest(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDiskForTest() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_ = {};
  void (*handler_)(int) = nullptr;
};

TEST_F(SqliteStoreTest, AConversionKeepsACopyForTheVersionBefore) {
  PutJobs(3);
  MakeSchema(5, kSinceSchema5);
  std::vector<std::string> notes;
  SqliteStoreOptions options = Options();
  options.note = [&notes](const std::string& note) { notes.push_back(note); };
  ASSERT_TRUE(SqliteStore::Open(options).ok());
  ASSERT_TRUE(SqliteStore::Open(options).ok());
  const std::string copy = Path() + ".schema-5";
  ASSERT_EQ(notes.size(), 1u) << "the second start converts nothing";
  EXPECT_THAT(notes[0], HasSubstr("from schema 5 to 6"));
  EXPECT_THAT(notes[0], HasSubstr(copy));
  EXPECT_EQ(SchemaOf(Path()), 6);
  EXPECT_EQ(SchemaOf(copy), 5);
  EXPECT_EQ(Number(copy, "SELECT count(*) FROM jobs"), 3);
  EXPECT_EQ(Number(copy, "SELECT count(*) FROM sqlite_master WHERE name='users'"), 0);
  EXPECT_EQ(std::filesystem::status(copy).permissions(), std::filesystem::perms(0600));
  EXPECT_FALSE(std::filesystem::exists(copy + ".partial"));
}

TEST_F(SqliteStoreTest, ACopyOfAnEarlierSchemaIsNeverReplaced) {
  PutJobs(1);
  MakeSchema(5, kSinceSchema5);
  ASSERT_TRUE(SqliteStore::Open(Options()).ok());
  // As after a way back that was given up: one more job, and converted again.
  PutJobs(2);
  MakeSchema(5, kSinceSchema5);
  ASSERT_TRUE(SqliteStore::Open(Options()).ok());
  EXPECT_EQ(Number(Path() + ".schema-5", "SELECT count(*) FROM jobs"), 1);
  EXPECT_EQ(Number(Path() + ".schema-5-2", "SELECT count(*) FROM jobs"), 2);
}

TEST_F(SqliteStoreTest, WithoutRoomForItsCopyAFileIsNotConverted) {
  PutJobs(1);
  MakeSchema(5, kSinceSchema5);
  ASSERT_GT(std::filesystem::file_size(Path()), 64u << 10);
  {
    const FullDiskForTest full(64 << 10);
    const auto opened = SqliteStore::Open(Options());
    ASSERT_FALSE(opened.ok());
    EXPECT_THAT(opened.status().message(), HasSubstr("make room there"));
    EXPECT_THAT(opened.status().message(), HasSubstr("state.db.schema-5.partial"));
  }
  EXPECT_EQ(SchemaOf(Path()), 5);
  EXPECT_FALSE(std::filesystem::exists(Path() + ".schema-5"));
  EXPECT_FALSE(std::filesystem::exists(Path() + ".schema-5.partial"));
  EXPECT_TRUE(SqliteStore::Open(Options()).ok()) << "with room it is";
}

TEST_F(SqliteStoreTest, AFileHeldByAnotherCoordinatorIsRefused) {
  auto first = SqliteStore::Open(Options());
  ASSERT_TRUE(first.ok()) << first.status().ToString();
  auto second = SqliteStore::Open(Options());
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(second.status().message(), HasSubstr("another coordinator"));
}

TEST_F(SqliteStoreTest, ANewerSchemaIsRefusedWithBothVersions) {
  ASSERT_TRUE(SqliteStore::Open(Options()).ok());
  {
    auto database = SqliteDatabase::Open(Path());
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE(database->Execute("UPDATE meta SET value=99 WHERE key='schema'").ok());
  }
  const auto opened = SqliteStore::Open(Options());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(opened.status().message(), HasSubstr("schema 99"));
  EXPECT_THAT(opened.status().message(), HasSubstr("knows 3 to 6"));
  EXPECT_THAT(opened.status().message(), HasSubstr("put the copy that it kept"));
  EXPECT_EQ(SchemaOf(Path()), 99) << "left untouched";
}

TEST_F(SqliteStoreTest, ASchemaWithoutQueuesGetsThem) {
  MakeSchema(3,
             "DROP TABLE queues; DROP TABLE queue_usage; DROP TABLE queue_days; DROP TABLE users; "
             "DROP TABLE secrets; "
             "DROP TABLE audit");
  for (int start = 0; start < 2; ++start) {
    const auto opened = SqliteStore::Open(Options());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const auto state = (*opened)->Load();
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    EXPECT_EQ(state->queues, QueuesRecord{});
    EXPECT_TRUE(state->queue_usage.empty());
  }
}

TEST_F(SqliteStoreTest, ASchemaWithoutUsersGetsThemAndAnAuditTrail) {
  MakeSchema(5, "DROP TABLE users; DROP TABLE audit; DROP TABLE secrets");
  for (int start = 0; start < 2; ++start) {
    const auto opened = SqliteStore::Open(Options());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const auto state = (*opened)->Load();
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    EXPECT_EQ(state->users, UsersRecord{});
    EXPECT_EQ(state->audit, AuditHead{});
  }
}

TEST_F(SqliteStoreTest, KeepsTheNewestAuditEntries) {
  SqliteStoreOptions options = Options();
  options.kept_audit = 100;
  auto store = SqliteStore::Open(options);
  ASSERT_TRUE(store.ok());
  AuditHead head;
  for (int i = 0; i < 1000; ++i) {
    std::promise<Status> done;
    std::string line = SealAuditEntry({.operation = "Cancel"}, &head);
    (*store)->Commit({AppendAudit{head.seq, std::move(line)}},
                     [&](const Status& status) { done.set_value(status); });
    ASSERT_TRUE(done.get_future().get().ok());
  }
  std::promise<std::vector<std::string>> read;
  (*store)->ReadAudit({}, [&](Result<std::vector<std::string>> lines) { read.set_value(*lines); });
  const std::vector<std::string> lines = read.get_future().get();
  EXPECT_GE(lines.size(), 100u);
  EXPECT_LT(lines.size(), 700u);
  AuditVerifier verifier;
  for (const std::string& line : lines) EXPECT_EQ(verifier.Add(line), OkStatus());
  EXPECT_EQ(verifier.head(), head);
}

TEST_F(SqliteStoreTest, ASchemaWithoutDaysOfQueuesGetsThem) {
  MakeSchema(4, "DROP TABLE queue_days; DROP TABLE users; DROP TABLE audit; DROP TABLE secrets");
  for (int start = 0; start < 2; ++start) {
    const auto opened = SqliteStore::Open(Options());
    ASSERT_TRUE(opened.ok()) << opened.status().ToString();
    const auto state = (*opened)->Load();
    ASSERT_TRUE(state.ok()) << state.status().ToString();
    EXPECT_TRUE(state->queue_days.empty());
  }
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsRefused) {
  FILE* file = ::fopen(Path().c_str(), "w");
  ASSERT_NE(file, nullptr);
  ::fputs(std::string(4096, 'x').c_str(), file);
  ::fclose(file);
  const auto opened = SqliteStore::Open(Options());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), StatusCode::kDataLoss) << opened.status().ToString();
}

TEST_F(SqliteStoreTest, ARecordThatCannotBeReadIsNamed) {
  ASSERT_TRUE(SqliteStore::Open(Options()).ok());
  {
    auto database = SqliteDatabase::Open(Path());
    ASSERT_TRUE(database->Execute("INSERT INTO jobs VALUES('x','queued','{\"id\":5}')").ok());
  }
  auto store = SqliteStore::Open(Options());
  ASSERT_TRUE(store.ok());
  const auto state = (*store)->Load();
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.status().code(), StatusCode::kDataLoss);
  EXPECT_THAT(state.status().message(), HasSubstr("table jobs"));
}

TEST_F(SqliteStoreTest, OnlyTheOwnerMayReadTheFile) {
  auto store = SqliteStore::Open(Options());
  ASSERT_TRUE(store.ok());
  struct stat info {};
  ASSERT_EQ(::stat(Path().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SqliteStoreTest, CommitsThatWaitShareATransaction) {
  auto store = SqliteStore::Open(Options());
  ASSERT_TRUE(store.ok());
  // The first commit's callback holds the store's thread until the others are queued.
  std::promise<void> queued;
  std::promise<void> all;
  (*store)->Commit({NumberedJob(0)}, [&](const Status&) { queued.get_future().get(); });
  std::atomic<int> done = 0;
  for (int i = 1; i <= 50; ++i) {
    (*store)->Commit({NumberedJob(i)}, [&](const Status& status) {
      EXPECT_TRUE(status.ok());
      if (++done == 50) all.set_value();
    });
  }
  queued.set_value();
  all.get_future().get();
  EXPECT_LE((*store)->transactions(), 3u);
}

// A store whose thread stands still in the callback of a commit, so that all else waits.
class HeldStore {
 public:
  explicit HeldStore(Store& store) {
    store.Commit({NumberedJob(0)}, [this](const Status&) {
      held_.set_value();
      let_go_.get_future().get();
    });
    held_.get_future().get();
  }
  void LetGo() { let_go_.set_value(); }

 private:
  std::promise<void> held_;
  std::promise<void> let_go_;
};

TEST_F(SqliteStoreTest, AQueueThatOverflowsPoisonsTheStore) {
  SqliteStoreOptions options = Options();
  options.max_queued = 3;
  auto store = SqliteStore::Open(options);
  ASSERT_TRUE(store.ok());
  std::promise<Status> last;
  HeldStore held(**store);
  for (int i = 1; i <= 4; ++i) (*store)->Commit({NumberedJob(i)}, [](const Status&) {});
  (*store)->Commit({NumberedJob(5)}, [&](const Status& status) { last.set_value(status); });
  held.LetGo();
  EXPECT_EQ(last.get_future().get().code(), StatusCode::kResourceExhausted);
}

TEST_F(SqliteStoreTest, ReadsThatWaitPoisonNothing) {
  SqliteStoreOptions options = Options();
  options.max_queued = 3;
  auto store = SqliteStore::Open(options);
  ASSERT_TRUE(store.ok());
  HeldStore held(**store);
  std::atomic<int> read = 0;
  for (int i = 0; i < 10; ++i)
    (*store)->ReadEvents({.limit = 1}, [&](const auto& events) { read += events.ok() ? 1 : 0; });
  held.LetGo();
  EXPECT_TRUE(CommitAndWait(**store, {NumberedJob(1)}).ok());
  EXPECT_TRUE(CommitAndWait(**store, {NumberedJob(2)}).ok());
  store->reset();  // finishes what waits
  EXPECT_EQ(read, 10);
}

TEST_F(SqliteStoreTest, OldEventsAreRemovedWhenItIsOpened) {
  SqliteStoreOptions options = Options();
  {
    auto store = SqliteStore::Open(options);
    std::vector<StoreOperation> operations;
    for (std::uint64_t seq = 1; seq <= 20; ++seq) operations.push_back(AppendEvent{{.seq = seq}});
    (*store)->Commit(std::move(operations), [](const Status&) {});
  }
  options.kept_events = 5;
  auto store = SqliteStore::Open(options);
  const auto state = (*store)->Load();
  ASSERT_EQ(state->events.size(), 5u);
  EXPECT_EQ(state->events.front().seq, 16u);
}

// They were removed only when it was opened, so that a coordinator which ran for long kept them
// all.
TEST_F(SqliteStoreTest, OldEventsAreRemovedWhileItRunsAFewHundredAtATime) {
  SqliteStoreOptions options = Options();
  options.kept_events = 100;
  auto store = SqliteStore::Open(options);
  ASSERT_TRUE(store.ok());
  std::uint64_t seq = 0;
  const auto append = [&](int count) {
    std::vector<StoreOperation> operations;
    for (int i = 0; i < count; ++i) operations.push_back(AppendEvent{{.seq = ++seq}});
    EXPECT_TRUE(CommitAndWait(**store, std::move(operations)).ok());
  };
  const auto oldest = [&] {
    std::promise<std::uint64_t> found;
    (*store)->ReadEvents({.limit = 1},
                         [&](const auto& events) { found.set_value(events->at(0).seq); });
    return found.get_future().get();
  };
  append(300);
  EXPECT_EQ(oldest(), 1u);
  append(1000);  // 1,200 too many
  EXPECT_EQ(oldest(), 1201u);
  append(300);
  EXPECT_EQ(oldest(), 1501u);
  for (int i = 0; i < 100; ++i) append(5);
  EXPECT_LE(oldest(), seq - 99);
  EXPECT_GT(oldest(), seq - 100 - 256);
}

TEST_F(SqliteStoreTest, WhatWasReportedDurableSurvivesSigkill) {
  const std::size_t told = CommitsUntilKilled(
      [this]() -> Result<std::unique_ptr<Store>> {
        MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Store> store, SqliteStore::Open(Options()));
        return store;
      },
      25);
  auto store = SqliteStore::Open(Options());
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_GE((*store)->Load()->jobs.size(), told);
}

}  // namespace
}  // namespace muster
