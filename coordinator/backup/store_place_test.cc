#include "coordinator/backup/store_place.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <limits>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "coordinator/backup/testing/every_record.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/etcd_writer.h"
#include "coordinator/store/journal_format.h"
#include "coordinator/store/journal_store.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/testing/etcd_server.h"
#include "coordinator/store/testing/memory_store.h"
#include "coordinator/store/testing/store_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;
using Kind = StorePlace::Kind;

// A job file of this length has several keys in etcd.
constexpr std::size_t kLarge = 600 << 10;
constexpr Kind kKinds[] = {Kind::kSqlite, Kind::kJournal, Kind::kEtcd};

Status NoProgress(std::uint64_t) { return OkStatus(); }

StoreContents ContentsOf(const std::vector<StoreOperation>& operations, std::uint64_t epoch = 3) {
  StoreContents contents{.epoch = epoch};
  for (const StoreOperation& each : operations) AppendOperation(each, &contents.payload);
  return *InOrder(std::move(contents), std::numeric_limits<std::uint64_t>::max());
}

class StorePlaceTest : public ::testing::Test {
 protected:
  // A new one.
  StorePlace Place(Kind kind) {
    StorePlace place{.kind = kind, .path = dir_ / ("store-" + std::to_string(++places_))};
    if (kind == Kind::kEtcd)
      place.etcd = {EtcdServerForTest::Shared().access(), EtcdServerForTest::NewPrefix()};
    return place;
  }
  // As a coordinator does.
  static std::unique_ptr<Store> Open(const StorePlace& place, std::uint64_t* epoch = nullptr) {
    if (place.kind == Kind::kSqlite) {
      auto store = SqliteStore::Open({.path = place.path});
      if (!store.ok()) return Failed(store.status());
      if (epoch) *epoch = (*store)->epoch();
      return *std::move(store);
    }
    if (place.kind == Kind::kJournal) {
      auto store = JournalStore::Open({.journal = {.dir = place.path, .node = "n1", .pid = 7}});
      if (!store.ok()) return Failed(store.status());
      if (epoch) *epoch = (*store)->epoch();
      return *std::move(store);
    }
    auto store = EtcdStore::Open({.access = place.etcd.access,
                                  .prefix = place.etcd.prefix,
                                  .claim = {.node = "n1", .pid = 7},
                                  .lease_seconds = 30,
                                  .allow_unsafe = true});
    if (!store.ok()) return Failed(store.status());
    if (epoch) *epoch = (*store)->epoch();
    return *std::move(store);
  }
  static StoreContents Read(const StorePlace& place) {
    const Result<StoreContents> contents = ReadStore(place, NoProgress);
    EXPECT_TRUE(contents.ok()) << contents.status().ToString();
    return contents.ok() ? *contents : StoreContents{};
  }

 private:
  static std::unique_ptr<Store> Failed(const Status& status) {
    ADD_FAILURE() << status.ToString();
    return nullptr;
  }
  const TempDirForTest dir_;
  int places_ = 0;
};

TEST_F(StorePlaceTest, WhatACoordinatorCommitsIsReadBesideIt) {
  const EveryRecordForTest every = EveryRecord(kLarge);
  for (const Kind kind : kKinds) {
    const StorePlace place = Place(kind);
    const std::unique_ptr<Store> store = Open(place);
    ASSERT_NE(store, nullptr);
    ASSERT_TRUE(CommitAndWait(*store, every.operations).ok());
    EXPECT_EQ(Read(place).payload, ContentsOf(every.operations).payload) << place.Text();
    // The reading has disturbed nothing.
    EXPECT_TRUE(CommitAndWait(*store, {PutQueueUsage{"nlp", 2}}).ok());
  }
}

TEST_F(StorePlaceTest, EachKindOfStoreIsMadeOfEachOther) {
  const EveryRecordForTest every = EveryRecord(kLarge);
  const StoreContents all = ContentsOf(every.operations);
  MemoryStore memory;
  ASSERT_TRUE(CommitAndWait(memory, every.operations).ok());
  const StoredState expected = *memory.Load();
  for (const Kind from : kKinds) {
    for (const Kind to : {Kind::kSqlite, Kind::kJournal, Kind::kEtcd, Kind::kBackup}) {
      const StorePlace source = Place(from), target = Place(to);
      const auto made = RestoreStore(all, source, IfNotEmpty::kRefuse, NoProgress);
      ASSERT_TRUE(made.ok()) << made.status().ToString();
      const StoreContents restored = Read(source);
      const auto epoch = MigrateStore(source, target, IfNotEmpty::kRefuse, NoProgress);
      ASSERT_TRUE(epoch.ok()) << epoch.status().ToString();
      EXPECT_GT(*epoch, *made);
      EXPECT_EQ(Read(target).payload, restored.payload);
      if (to == Kind::kBackup) continue;
      std::uint64_t own_epoch = 0;
      const std::unique_ptr<Store> store = Open(target, &own_epoch);
      ASSERT_NE(store, nullptr);
      EXPECT_EQ(own_epoch, *epoch + (to == Kind::kSqlite ? 0 : 1));
      const StoredState state = *store->Load();
      EXPECT_EQ(state.archived, expected.archived);
      EXPECT_THAT(state.attempts, UnorderedElementsAreArray(expected.attempts));
      EXPECT_EQ(state.checkpoints, expected.checkpoints);
      EXPECT_EQ(state.nodes, expected.nodes);
      EXPECT_EQ(state.events, expected.events);
      EXPECT_EQ(state.queues, expected.queues);
      EXPECT_EQ(state.users, expected.users);
      EXPECT_EQ(state.secrets, expected.secrets);
      EXPECT_EQ(state.audit, expected.audit);
      EXPECT_EQ(state.queue_usage, expected.queue_usage);
      EXPECT_EQ(state.queue_days, expected.queue_days);
      EXPECT_EQ(state.archived_time, expected.archived_time);
      EXPECT_EQ(state.jobs.size(), 2u);
      std::promise<std::vector<ArchivedRecords>> read;
      store->ReadArchive({.job = JobId{"a"}}, [&read](auto found) { read.set_value(*found); });
      EXPECT_EQ(read.get_future().get().at(0).job, std::get<PutJob>(every.operations[0]).job);
    }
  }
}

TEST_F(StorePlaceTest, AnArchiveOfManyJobsComesThroughEtcdWhichGoesOnWithIt) {
  std::vector<StoreOperation> operations;
  for (int i = 0; i < 150; ++i) {
    const std::string id = std::to_string(1000 + i);
    JobRecord job = JobForTest(id, static_cast<std::uint64_t>(i + 1), JobState::kSucceeded);
    job.generation = 1;
    job.ended_unix_ms = 6;
    operations.insert(operations.end(),
                      {PutJob{job}, PutAttempt{AttemptForTest(id, 1, AttemptState::kEnded)},
                       PutCheckpoint{CheckpointForTest(id, 3)}, ArchiveJob{ArchivedJobOf(job)}});
  }
  const StoreContents all = ContentsOf(operations);
  const StorePlace place = Place(Kind::kEtcd);
  ASSERT_TRUE(RestoreStore(all, place, IfNotEmpty::kRefuse, NoProgress).ok());
  EXPECT_EQ(Read(place).payload, all.payload);
  const std::unique_ptr<Store> store = Open(place);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(store->Load()->archived.size(), 150u);
  const JobRecord next = JobForTest("2000", 151, JobState::kSucceeded);
  ASSERT_TRUE(CommitAndWait(*store, {PutJob{next}}).ok());
  ASSERT_TRUE(CommitAndWait(*store, {ArchiveJob{ArchivedJobOf(next)}}).ok());
  const auto operations_then = OperationsOf(Read(place));
  ASSERT_TRUE(operations_then.ok()) << operations_then.status().ToString();
  EXPECT_EQ(operations_then->size(), operations.size() + 2);
}

// The log of a killed coordinator's store stays where the store is moved away from.
TEST_F(StorePlaceTest, TheLogOfAStoreThatWasMovedAwayIsNotAppliedToTheNewOne) {
  const StorePlace place = Place(Kind::kSqlite), killed = Place(Kind::kSqlite);
  const std::string log = "-wal";
  {
    const std::unique_ptr<Store> store = Open(killed);
    ASSERT_TRUE(CommitAndWait(*store, {PutQueueUsage{"old", 2}}).ok());
    std::filesystem::copy_file(killed.path + log, place.path + log);
  }
  const StoreContents all = ContentsOf(EveryRecord().operations);
  ASSERT_TRUE(RestoreStore(all, place, IfNotEmpty::kRefuse, NoProgress).ok());
  EXPECT_FALSE(std::filesystem::exists(place.path + log));
  const StoredState state = *Open(place)->Load();
  EXPECT_EQ(state.jobs.size(), 2u);
  EXPECT_FALSE(state.queue_usage.contains("old"));
}

TEST_F(StorePlaceTest, AnUnfinishedJobSkipsTheGenerationsThatItMayHaveHadSince) {
  const StorePlace place = Place(Kind::kSqlite);
  ASSERT_TRUE(
      RestoreStore(ContentsOf(EveryRecord().operations), place, IfNotEmpty::kRefuse, NoProgress)
          .ok());
  const StoredState state = *Open(place)->Load();
  ASSERT_EQ(state.jobs.size(), 2u);
  for (const JobRecord& job : state.jobs)
    EXPECT_EQ(job.next_generation, job.generation + 1000) << job.id.value;
}

TEST_F(StorePlaceTest, AStoreWithRecordsIsReplacedOnlyWhereThatIsAsked) {
  const StoreContents all = ContentsOf(EveryRecord().operations);
  const StoreContents other = ContentsOf({PutQueueUsage{"default", 1}});
  for (const Kind kind : {Kind::kSqlite, Kind::kEtcd}) {
    const StorePlace place = Place(kind);
    ASSERT_TRUE(RestoreStore(all, place, IfNotEmpty::kRefuse, NoProgress).ok());
    const StoreContents before = Read(place);
    EXPECT_EQ(RestoreStore(other, place, IfNotEmpty::kRefuse, NoProgress).status().code(),
              StatusCode::kAlreadyExists);
    EXPECT_EQ(Read(place).payload, before.payload);
    const auto replaced = RestoreStore(other, place, IfNotEmpty::kReplace, NoProgress);
    ASSERT_TRUE(replaced.ok()) << replaced.status().ToString();
    EXPECT_EQ(Read(place).payload, other.payload);
    EXPECT_GT(*replaced, before.epoch);
    if (kind != Kind::kSqlite) continue;
    EXPECT_EQ(ReadStore({.path = place.path + ".replaced"}, NoProgress)->payload, before.payload);
  }
  const StorePlace journal = Place(Kind::kJournal);
  ASSERT_TRUE(RestoreStore(all, journal, IfNotEmpty::kRefuse, NoProgress).ok());
  EXPECT_EQ(RestoreStore(other, journal, IfNotEmpty::kReplace, NoProgress).status().code(),
            StatusCode::kAlreadyExists);
}

TEST_F(StorePlaceTest, AStoreThatACoordinatorHasIsNeitherReplacedNorMigrated) {
  const StoreContents all = ContentsOf(EveryRecord().operations);
  for (const Kind kind : {Kind::kSqlite, Kind::kEtcd}) {
    const StorePlace place = Place(kind);
    const std::unique_ptr<Store> store = Open(place);
    ASSERT_NE(store, nullptr);
    const auto restored = RestoreStore(all, place, IfNotEmpty::kReplace, NoProgress);
    EXPECT_THAT(restored.status().message(),
                HasSubstr(kind == Kind::kSqlite ? "has a coordinator" : "leads at"));
    const auto migrated =
        MigrateStore(place, Place(Kind::kSqlite), IfNotEmpty::kRefuse, NoProgress);
    EXPECT_EQ(migrated.status().code(), restored.status().code());
    EXPECT_TRUE(CommitAndWait(*store, {PutQueueUsage{"default", 1}}).ok());
  }
}

TEST_F(StorePlaceTest, AJournalThatIsMigratedFencesItsCoordinator) {
  const StorePlace place = Place(Kind::kJournal);
  const std::unique_ptr<Store> store = Open(place);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(MigrateStore(place, Place(Kind::kSqlite), IfNotEmpty::kRefuse, NoProgress).ok());
  EXPECT_EQ(CommitAndWait(*store, {PutQueueUsage{"default", 1}}).code(), StatusCode::kAborted);
}

TEST_F(StorePlaceTest, WhatAKilledWriterLeftIsRemoved) {
  const StoreContents all = ContentsOf(EveryRecord().operations);
  const StorePlace database = Place(Kind::kSqlite), journal = Place(Kind::kJournal);
  ASSERT_TRUE(WriteFileAtomically(database.path + ".partial", "half a file").ok());
  ASSERT_TRUE(WriteFileAtomically(database.path + ".partial-wal", "and its log").ok());
  ASSERT_TRUE(MakeDirectories(journal.path + ".partial/log").ok());
  for (const StorePlace& place : {database, journal}) {
    EXPECT_TRUE(RestoreStore(all, place, IfNotEmpty::kRefuse, NoProgress).ok());
    EXPECT_FALSE(Read(place).payload.empty());
    EXPECT_FALSE(std::filesystem::exists(place.path + ".partial"));
  }
}

TEST_F(StorePlaceTest, AWriterThatIsInterruptedLeavesWhatWasThere) {
  const StoreContents all = ContentsOf(EveryRecord().operations);
  const auto interrupt = [](std::uint64_t) { return Cancelled("interrupted"); };
  const StorePlace place = Place(Kind::kSqlite);
  EXPECT_EQ(RestoreStore(all, place, IfNotEmpty::kRefuse, interrupt).status().code(),
            StatusCode::kCancelled);
  EXPECT_EQ(Read(place).payload, "");
}

// They counted before the keys themselves were written.
TEST_F(StorePlaceTest, WhatALeaderHasStagedIsRead) {
  const StorePlace place = Place(Kind::kEtcd);
  ASSERT_NE(Open(place), nullptr);
  const EtcdKeys keys(place.etcd.prefix);
  const std::string large(700 << 10, 'q');
  EtcdChanges changes;
  changes[keys.Under("queues")] = "{\"version\":1,\"yaml\":\"" + large + "\"}";
  changes[keys.Under("nodes/gone")] = std::nullopt;
  etcdserverpb::TxnRequest part, request;
  for (etcdserverpb::RequestOp& each : EtcdOperations(changes)) *part.add_success() = each;
  const std::string stage = keys.Under("stage/1.1/");
  *request.add_success() = EtcdPut(keys.Under("nodes/gone"), "{\"name\":\"gone\"}");
  *request.add_success() = EtcdPut(stage + "0", part.SerializeAsString());
  *request.add_success() = EtcdPut(keys.Under("staged"), stage);
  ASSERT_TRUE(
      EtcdServerForTest::Shared().Client()->Transact(request, std::chrono::seconds(10)).ok());
  EXPECT_EQ(Read(place).payload, ContentsOf({PutQueues{{1, large}}}).payload);
}

TEST_F(StorePlaceTest, ADamagedBackupIsRefusedWithTheFileAndTheByte) {
  const StorePlace place = Place(Kind::kBackup);
  ASSERT_TRUE(WriteBackup(place.path, ContentsOf(EveryRecord().operations)).ok());
  struct stat info {};
  ASSERT_EQ(::stat(place.path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(WriteBackup(place.path, {}).code(), StatusCode::kAlreadyExists);
  const std::string whole = *ReadFile(place.path);
  std::string changed = whole;
  changed[100] ^= 1;
  const std::pair<std::string, std::string> damages[] = {
      {changed, "is damaged at byte 56: the payload's checksum"},
      {whole.substr(0, 90), "is damaged at byte 90"},
      {"", "is damaged at byte 0"},
      {std::string(4096, 'x'), "is damaged at byte 0: not a journal file"}};
  for (const auto& [bytes, message] : damages) {
    ASSERT_TRUE(WriteFileAtomically(place.path, bytes).ok());
    EXPECT_THAT(ReadStore(place, NoProgress).status().message(),
                HasSubstr(place.path + " " + message));
  }
}

TEST_F(StorePlaceTest, APlaceWithoutAStoreIsNamed) {
  for (const Kind kind : kKinds) {
    const StorePlace place = Place(kind);
    const Status status = ReadStore(place, NoProgress).status();
    EXPECT_EQ(status.code(), StatusCode::kNotFound) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr("name the"));
  }
}

}  // namespace
}  // namespace muster
