// Stores of coordinators as releases have left them: a SQLite file, journals of commits and with a
// snapshot, and keys of etcd.

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "common/base/testing/temp_dir.h"
#include "coordinator/store/etcd_reader.h"
#include "coordinator/store/etcd_store.h"
#include "coordinator/store/journal_store.h"
#include "coordinator/store/sqlite_database.h"
#include "coordinator/store/sqlite_store.h"
#include "coordinator/store/testing/etcd_server.h"
#include "coordinator/store/testing/store_testing.h"
#include "tests/golden/golden_records.h"
#include "tests/golden/release_golden.h"

namespace muster::golden {
namespace {

namespace fs = std::filesystem;

// Files that stores may write to.
std::string CopyOf(const std::string& from, const TempDirForTest& dir) {
  const std::string to = dir / fs::path(from).filename().string();
  fs::copy(from, to, fs::copy_options::recursive);
  return to;
}

void WriteSqlite(const std::string& release) {
  const std::string path = release + "/state.db";
  fs::remove(path);
  {
    auto store = SqliteStore::Open({.path = path});
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    ASSERT_TRUE(CommitAndWait(**store, MakeGoldenRecords().operations).ok());
  }
  // Small pages, so that the file is: of twenty tables each has one at least.
  auto database = SqliteDatabase::Open(path);
  ASSERT_TRUE(database->Execute("PRAGMA journal_mode=DELETE; PRAGMA page_size=1024; VACUUM").ok());
}

TEST(StoreGolden, ASqliteFileOfAReleaseIsReadAsItWasMeant) {
  ForEachRelease(WriteSqlite, [](const std::string& release) {
    const TempDirForTest dir;
    auto store = SqliteStore::Open({.path = CopyOf(release + "/state.db", dir)});
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    ExpectGoldenRecords(**store);
  });
}

Result<std::unique_ptr<JournalStore>> OpenJournal(const std::string& dir,
                                                  std::uint64_t snapshot_after) {
  JournalStoreOptions options;
  options.journal = {.dir = dir, .node = "n1", .pid = 7, .address = "10.0.0.1:7070", .unix_ms = 5};
  options.journal.snapshot_commits = snapshot_after;
  return JournalStore::Open(std::move(options));
}

void WriteJournal(const std::string& dir, std::uint64_t snapshot_after) {
  fs::remove_all(dir);
  auto store = OpenJournal(dir, snapshot_after);
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  ASSERT_TRUE(CommitAndWait(**store, MakeGoldenRecords().operations).ok());
}

// Git keeps no empty folders.
void KeepFolders(const std::string& dir) {
  for (const char* name : {"epoch", "log", "snapshot"}) fs::create_directories(dir + "/" + name);
}

TEST(StoreGolden, JournalsOfAReleaseAreReadAsTheyWereMeant) {
  const auto write = [](const std::string& release) {
    WriteJournal(release + "/journal-commits", 512);
    WriteJournal(release + "/journal-snapshot", 1);
    // What is left is the snapshot alone.
    const std::string log = release + "/journal-snapshot/log";
    const std::string snapshots = release + "/journal-snapshot/snapshot";
    ASSERT_FALSE(fs::is_empty(snapshots));
    std::string newest;
    for (const auto& file : fs::directory_iterator(snapshots))
      newest = std::max(newest, file.path().filename().string());
    for (const auto& file : fs::directory_iterator(log))
      if (file.path().filename().string() <= newest) fs::remove(file.path());
  };
  ForEachRelease(write, [](const std::string& release) {
    for (const char* name : {"/journal-commits", "/journal-snapshot"}) {
      SCOPED_TRACE(name);
      const TempDirForTest dir;
      const std::string copy = CopyOf(release + name, dir);
      KeepFolders(copy);
      auto store = OpenJournal(copy, 512);
      ASSERT_TRUE(store.ok()) << store.status().ToString();
      EXPECT_EQ((*store)->epoch(), 2u);
      ExpectGoldenRecords(**store);
    }
  });
}

Result<std::unique_ptr<EtcdStore>> OpenEtcd(const std::string& prefix) {
  return EtcdStore::Open({.access = EtcdServerForTest::Shared().access(),
                          .prefix = prefix,
                          .claim = {.node = "n1", .pid = 7},
                          .lease_seconds = 30});
}

// Packs of archived jobs are compressed, and no text.
nlohmann::ordered_json ToJson(const std::string& value) {
  if (!value.starts_with("\x28\xb5\x2f\xfd")) return value;
  return {{"bytes", Hex(value)}};
}
std::string FromJson(const nlohmann::ordered_json& json) {
  return json.is_string() ? json.get<std::string>() : Unhex(json["bytes"].get<std::string>());
}

void WriteEtcd(const std::string& release) {
  const std::string prefix = EtcdServerForTest::NewPrefix();
  {
    auto store = OpenEtcd(prefix);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    ASSERT_TRUE(CommitAndWait(**store, MakeGoldenRecords().operations).ok());
  }
  const auto client = EtcdServerForTest::Shared().Client();
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  EtcdReader reader(*client);
  const Status read = reader.Read(prefix, EtcdPrefixEnd(prefix), [&](const EtcdEntry& entry) {
    const std::string key = entry.key.substr(prefix.size());
    if (key != "leader") json[key] = ToJson(entry.value);  // it is under a lease
    return OkStatus();
  });
  ASSERT_TRUE(read.ok()) << read.ToString();
  WriteText(release + "/etcd.json", json.dump(1) + "\n");
}

TEST(StoreGolden, KeysOfEtcdOfAReleaseAreReadAsTheyWereMeant) {
  ForEachRelease(WriteEtcd, [](const std::string& release) {
    const std::string prefix = EtcdServerForTest::NewPrefix();
    const auto client = EtcdServerForTest::Shared().Client();
    const auto json = nlohmann::ordered_json::parse(ReadText(release + "/etcd.json"));
    EtcdChanges changes;
    for (const auto& [key, value] : json.items()) changes[prefix + key] = FromJson(value);
    etcdserverpb::TxnRequest request;
    for (auto& operation : EtcdOperations(changes)) *request.add_success() = std::move(operation);
    ASSERT_TRUE(client->Transact(request, std::chrono::seconds(10)).ok());
    auto store = OpenEtcd(prefix);
    ASSERT_TRUE(store.ok()) << store.status().ToString();
    EXPECT_EQ((*store)->epoch(), 2u);
    ExpectGoldenRecords(**store);
  });
}

}  // namespace
}  // namespace muster::golden
