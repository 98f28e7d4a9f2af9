// What holds for the store in etcd alone; store_test.cc has what every store must do.
#include "coordinator/store/etcd_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/audit/audit_chain.h"
#include "coordinator/store/etcd_defragmenter.h"
#include "coordinator/store/etcd_export.h"
#include "coordinator/store/record_codec.h"
#include "coordinator/store/testing/etcd_server.h"
#include "coordinator/store/testing/listener.h"
#include "coordinator/store/testing/lossy_proxy.h"
#include "coordinator/store/testing/store_testing.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Mode = LossyProxyForTest::Mode;

EventRecord Event(std::uint64_t seq, const std::string& message = "") {
  return {.seq = seq, .job = JobId{"a"}, .message = message};
}

class EtcdStoreTest : public ::testing::Test {
 protected:
  EtcdStoreOptions Options() const {
    return {.access = EtcdServerForTest::Shared().access(),
            .prefix = prefix_,
            .claim = {.node = "n1", .pid = 7},
            .lease_seconds = 30,
            .allow_unsafe = true};
  }
  EtcdStoreOptions OptionsOver(const LossyProxyForTest& proxy) const {
    EtcdStoreOptions options = Options();
    options.access.members = {{proxy.address(), /*tls=*/false}};
    return options;
  }
  static std::unique_ptr<EtcdStore> Open(EtcdStoreOptions options) {
    auto store = EtcdStore::Open(std::move(options));
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    if (!store.ok()) return nullptr;
    const auto state = (*store)->Load();
    EXPECT_TRUE(state.ok()) << state.status().ToString();
    return *std::move(store);
  }
  std::unique_ptr<EtcdStore> Open() const { return Open(Options()); }
  StoredState Stored() const {
    auto store = EtcdStore::Open(Options());
    EXPECT_TRUE(store.ok()) << store.status().ToString();
    return store.ok() ? (*store)->Load().value() : StoredState{};
  }

  std::vector<std::string> KeysUnder(const std::string& folder) const {
    std::vector<std::string> keys;
    const std::string first = prefix_ + folder;
    EXPECT_TRUE(EtcdReader(*client_)
                    .Read(first, EtcdPrefixEnd(first),
                          [&keys](const EtcdEntry& entry) -> Status {
                            keys.push_back(entry.key);
                            return OkStatus();
                          })
                    .ok());
    return keys;
  }
  std::string ValueOf(const std::string& name) const {
    return EtcdReader(*client_).Get(prefix_ + name)->value_or("");
  }
  void Change(etcdserverpb::RequestOp operation) const {
    etcdserverpb::TxnRequest request;
    *request.add_success() = std::move(operation);
    ASSERT_TRUE(client_->Transact(request, std::chrono::seconds(10)).ok());
  }
  // As the end of its lease would.
  void EndLeadership() const { Change(EtcdDelete(prefix_ + kEtcdLeaderKey)); }

  const std::string prefix_ = EtcdServerForTest::NewPrefix();
  const std::unique_ptr<EtcdClient> client_ = EtcdServerForTest::Shared().Client();
};

std::future<Status> CommitLater(Store& store, std::vector<StoreOperation> operations) {
  auto done = std::make_shared<std::promise<Status>>();
  store.Commit(std::move(operations), [done](const Status& status) { done->set_value(status); });
  return done->get_future();
}

TEST_F(EtcdStoreTest, TheEpochRisesWithEachLeader) {
  for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) EXPECT_EQ(Open()->epoch(), epoch);
  EXPECT_EQ(ValueOf("epoch"), "20");
  EXPECT_THAT(KeysUnder("txn/"), SizeIs(17)) << "numbers of old leaders' transactions are removed";
}

TEST_F(EtcdStoreTest, ALeaderWhoseEpochIsTooLowGivesTheKeyUpForAHigherOne) {
  auto low = Open();
  std::promise<Status> lost;
  low->WatchLeadership(
      std::chrono::milliseconds(1), [&lost](const Status& status) { lost.set_value(status); },
      [] {});
  low->leadership().RaiseEpoch(41);
  EXPECT_EQ(lost.get_future().get().code(), StatusCode::kAborted);
  EXPECT_FALSE(low->IsCurrent());
  low.reset();
  EXPECT_EQ(Open()->epoch(), 42u);
}

TEST_F(EtcdStoreTest, AnotherCoordinatorWaitsUntilTheLeaderEnds) {
  auto first = Open();
  ASSERT_TRUE(CommitAndWait(*first, {NumberedJob(1)}).ok());
  std::promise<std::string> waits;
  EtcdStoreOptions options = Options();
  options.note = [&waits](const std::string& text) { waits.set_value(text); };
  auto second = std::async(std::launch::async, [&] { return Open(std::move(options)); });
  EXPECT_THAT(waits.get_future().get(), HasSubstr("epoch 1 on node n1 (pid 7)"));
  ASSERT_TRUE(CommitAndWait(*first, {NumberedJob(2)}).ok());
  first.reset();
  const auto leader = second.get();
  ASSERT_NE(leader, nullptr);
  EXPECT_EQ(leader->epoch(), 2u);
  EXPECT_THAT(leader->Load()->jobs, SizeIs(2));
}

// Seen with a majority of etcd killed for six seconds: the coordinator that stood by ended, and
// when the leader died none was left.
TEST_F(EtcdStoreTest, ACoordinatorThatStandsByOutlastsAnEtcdThatDoesNotAnswer) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  const auto first = Open();
  std::promise<void> waits, unanswered;
  EtcdStoreOptions options = OptionsOver(proxy);
  options.answers_within = std::chrono::seconds(1);
  options.note = [&, waited = false, asked = false](const std::string& text) mutable {
    if (!text.starts_with("does not answer")) {
      if (!std::exchange(waited, true)) waits.set_value();
    } else if (!std::exchange(asked, true)) {
      unanswered.set_value();
    }
  };
  auto second = std::async(std::launch::async, [&] { return Open(std::move(options)); });
  waits.get_future().wait();
  ASSERT_TRUE(CommitAndWait(*first, {NumberedJob(1)}).ok());
  proxy.Set(Mode::kLoseRequests);
  EndLeadership();
  unanswered.get_future().wait();
  proxy.Set(Mode::kPass);
  const auto leader = second.get();
  ASSERT_NE(leader, nullptr);
  EXPECT_EQ(leader->epoch(), 2u);
}

TEST_F(EtcdStoreTest, TheLeaseOfALeaderWhoseProcessHasEndedIsNotWaitedFor) {
  ListenerForTest port;
  EtcdStoreOptions ends = Options();
  ends.lease_seconds = 60;
  auto first = Open(std::move(ends));
  first->leadership().Announce(port.address(), "");
  std::promise<void> waits, over;
  EtcdStoreOptions options = Options();
  options.note = [&](const std::string& text) {
    if (text.find(port.address()) == std::string::npos) return;
    text.find("has ended") == std::string::npos ? waits.set_value() : over.set_value();
  };
  auto second = std::async(std::launch::async, [&] { return Open(std::move(options)); });
  waits.get_future().wait();
  port.AwaitClient();
  port.Close();
  over.get_future().wait();
  const auto leader = second.get();
  ASSERT_NE(leader, nullptr);
  EXPECT_EQ(leader->epoch(), 2u);
  EXPECT_EQ(CommitAndWait(*first, {NumberedJob(1)}).code(), StatusCode::kAborted)
      << "it was alive after all, and commits nothing any more";
}

TEST_F(EtcdStoreTest, AFencedCoordinatorCommitsNothingAndSaysWhoLeads) {
  const auto first = Open();
  EndLeadership();
  const auto second = Open();
  const Status refused = CommitAndWait(*first, {NumberedJob(1)});
  EXPECT_EQ(refused.code(), StatusCode::kAborted);
  EXPECT_THAT(refused.message(), HasSubstr("epoch 2 on node n1"));
  EXPECT_TRUE(CommitAndWait(*second, {NumberedJob(2)}).ok());
  EXPECT_THAT(KeysUnder("jobs/1/"), IsEmpty());
}

TEST_F(EtcdStoreTest, AnIdleCoordinatorNoticesThatItDoesNotLead) {
  const auto store = Open();
  std::promise<Status> lost;
  store->WatchLeadership(
      std::chrono::milliseconds(1), [&lost](const Status& status) { lost.set_value(status); },
      [] {});
  EndLeadership();
  EXPECT_EQ(lost.get_future().get().code(), StatusCode::kAborted);
}

TEST_F(EtcdStoreTest, AChangeWhoseAnswerIsLostIsMadeOnce) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  const auto store = Open(OptionsOver(proxy));
  const std::uint64_t before = store->transactions();
  proxy.Set(Mode::kLoseAnswers);
  auto done = CommitLater(*store, {NumberedJob(1)});
  ASSERT_TRUE(Eventually([this] { return !KeysUnder("jobs/1/").empty(); }));
  proxy.Set(Mode::kPass);
  EXPECT_TRUE(done.get().ok());
  EXPECT_TRUE(CommitAndWait(*store, {NumberedJob(2)}).ok());
  EXPECT_EQ(ValueOf("txn/0000000000000001"), std::to_string(before + 2)) << "one was made twice";
}

TEST_F(EtcdStoreTest, AChangeThatIsLostIsSentAgain) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  const auto store = Open(OptionsOver(proxy));
  proxy.Set(Mode::kLoseRequests);
  auto done = CommitLater(*store, {NumberedJob(1)});
  EXPECT_EQ(done.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  EXPECT_THAT(KeysUnder("jobs/"), IsEmpty());
  proxy.Set(Mode::kPass);
  EXPECT_TRUE(done.get().ok());
  EXPECT_THAT(KeysUnder("jobs/1/"), SizeIs(2));
}

TEST_F(EtcdStoreTest, AChangeThatWasMadeCountsAlsoWhenAnotherLeadsBeforeTheAnswer) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  const auto store = Open(OptionsOver(proxy));
  proxy.Set(Mode::kLoseAnswers);
  auto done = CommitLater(*store, {NumberedJob(1)});
  ASSERT_TRUE(Eventually([this] { return !KeysUnder("jobs/1/").empty(); }));
  EndLeadership();
  const auto next = Open();
  proxy.Set(Mode::kPass);
  EXPECT_TRUE(done.get().ok());
  EXPECT_EQ(CommitAndWait(*store, {NumberedJob(2)}).code(), StatusCode::kAborted);
}

TEST_F(EtcdStoreTest, AChangeThatWasNotMadeWhenAnotherLeadsEndsTheLeader) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  const auto store = Open(OptionsOver(proxy));
  proxy.Set(Mode::kLoseRequests);
  auto done = CommitLater(*store, {NumberedJob(1)});
  EndLeadership();
  const auto next = Open();
  proxy.Set(Mode::kPass);
  EXPECT_EQ(done.get().code(), StatusCode::kAborted);
  EXPECT_THAT(KeysUnder("jobs/"), IsEmpty());
}

TEST_F(EtcdStoreTest, ALeaderWhoseLeaseIsNotConfirmedEnds) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  EtcdStoreOptions options = OptionsOver(proxy);
  options.lease_seconds = 1;
  options.ends_unconfirmed = std::chrono::seconds(1);
  const auto store = Open(std::move(options));
  EXPECT_TRUE(store->IsCurrent());
  proxy.Set(Mode::kLoseRequests);
  const Status refused = CommitAndWait(*store, {NumberedJob(1)});
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
  EXPECT_FALSE(store->IsCurrent());
  EXPECT_THAT(refused.message(), HasSubstr("has confirmed the lease"));
}

TEST_F(EtcdStoreTest, TheLeaseIsKeptAlive) {
  EtcdStoreOptions options = Options();
  options.lease_seconds = 1;  // etcd makes it two
  const auto store = Open(std::move(options));
  const Deadline later = Deadline::After(std::chrono::milliseconds(3500));
  int commits = 0;
  while (!later.Expired()) ASSERT_TRUE(CommitAndWait(*store, {NumberedJob(++commits)}).ok());
  EXPECT_THAT(KeysUnder("jobs/"), SizeIs(2 * commits));
}

TEST_F(EtcdStoreTest, CommitsThatWaitTogetherShareATransaction) {
  const auto store = Open();
  const std::uint64_t before = store->transactions();
  std::vector<std::future<Status>> done;
  for (int i = 0; i < 1000; ++i) done.push_back(CommitLater(*store, {NumberedJob(i % 10)}));
  for (auto& each : done) EXPECT_TRUE(each.get().ok());
  EXPECT_LT(store->transactions() - before, 200u);
}

// Of one commit: transactions that it took.
std::uint64_t TransactionsFor(EtcdStore& store, std::vector<StoreOperation> operations) {
  const std::uint64_t before = store.transactions();
  EXPECT_TRUE(CommitAndWait(store, std::move(operations)).ok());
  return store.transactions() - before;
}

std::vector<StoreOperation> Events(std::uint64_t first, int count, std::size_t bytes) {
  std::vector<StoreOperation> operations;
  for (int i = 0; i < count; ++i)
    operations.push_back(
        AppendEvent{Event(first + static_cast<std::uint64_t>(i), std::string(bytes, 'x'))});
  return operations;
}

TEST_F(EtcdStoreTest, CommitsAboveTheLimitsOfATransactionAreStaged) {
  const auto store = Open();
  std::uint64_t seq = 1;
  const auto transactions = [&](int count, std::size_t bytes) {
    const std::uint64_t first = std::exchange(seq, seq + static_cast<std::uint64_t>(count));
    return TransactionsFor(*store, Events(first, count, bytes));
  };
  EXPECT_EQ(transactions(98, 0), 1u);
  EXPECT_EQ(transactions(99, 0), 1u) << "and the transaction's own number is one more";
  EXPECT_EQ(transactions(100, 0), 2u + 1 + 2 + 1) << "two parts, the name, both made, removed";
  EXPECT_EQ(transactions(127, 0), 2u + 1 + 2 + 1);
  EXPECT_EQ(transactions(128, 0), 2u + 1 + 2 + 1);
  EXPECT_EQ(transactions(129, 0), 2u + 1 + 2 + 1);
  EXPECT_EQ(transactions(10, 100'000), 1u);
  EXPECT_EQ(transactions(11, 100'000), 2u + 1 + 2 + 1);
  EXPECT_EQ(transactions(16, 100'000), 2u + 1 + 2 + 1);
  EXPECT_THAT(KeysUnder("stage/"), IsEmpty());
  EXPECT_EQ(ValueOf("staged"), "");
}

JobRecord JobWithSpec(const std::string& id, std::string spec) {
  JobRecord job;
  job.id = JobId{id};
  job.state = JobState::kSucceeded;
  job.spec_yaml = std::move(spec);
  return job;
}

TEST_F(EtcdStoreTest, ValuesAboveTheLimitsComeBackWhole) {
  std::string text(3'000'000, 'x');
  for (std::size_t i = 0; i < text.size(); i += 7) text[i] = static_cast<char>('a' + i % 26);
  const std::vector<std::string> specs = {"",
                                          "\x01",
                                          "\x01"
                                          "2",
                                          std::string(kMaxEtcdValueBytes, 'y'),
                                          std::string(kMaxEtcdValueBytes + 1, 'y'),
                                          std::string(1 << 20, 'z'),
                                          text};
  {
    const auto store = Open();
    for (std::size_t i = 0; i < specs.size(); ++i)
      ASSERT_TRUE(CommitAndWait(*store, {PutJob{JobWithSpec(std::to_string(i), specs[i])}}).ok());
  }
  const StoredState state = Stored();
  ASSERT_THAT(state.jobs, SizeIs(specs.size()));
  for (std::size_t i = 0; i < specs.size(); ++i) EXPECT_EQ(state.jobs[i].spec_yaml, specs[i]) << i;
}

TEST_F(EtcdStoreTest, ADeletedCheckpointOfThousandsOfRanksLeavesNoPartBehind) {
  const JobRecord job = JobWithSpec("a", "spec");
  CheckpointRecord checkpoint{.job = job.id, .directory = "step-5"};
  for (int rank = 0; rank < 40000; ++rank)
    checkpoint.shards.push_back(
        {.rank = rank, .file = "rank.shard", .checksum = std::string(32, 'c')});
  ASSERT_GT(Encode(checkpoint).size(), kMaxEtcdValueBytes) << "so that it is divided";
  {
    const auto store = Open();
    ASSERT_TRUE(CommitAndWait(*store, {PutJob{job}, PutCheckpoint{checkpoint}}).ok());
    ASSERT_TRUE(CommitAndWait(*store, {DeleteCheckpoint{job.id, checkpoint.directory}}).ok());
  }
  EXPECT_THAT(Stored().checkpoints, IsEmpty());
  EXPECT_THAT(KeysUnder("jobs/"), SizeIs(2)) << "the record and the job file";
}

TEST_F(EtcdStoreTest, AJobOfAnySizeIsArchivedAndDeletedWithAllItsKeys) {
  const auto store = Open();
  const JobRecord job = JobWithSpec("a", std::string(2'000'000, 's'));
  std::vector<StoreOperation> operations = {PutJob{job}};
  for (int i = 1; i <= 200; ++i)
    operations.push_back(PutAttempt{AttemptRecord{.job = job.id, .generation = i}});
  ASSERT_TRUE(CommitAndWait(*store, std::move(operations)).ok());
  ASSERT_TRUE(CommitAndWait(*store, {ArchiveJob{ArchivedJobOf(job)}}).ok());
  EXPECT_THAT(KeysUnder("jobs/"), IsEmpty());
  std::promise<Result<std::vector<ArchivedRecords>>> read;
  store->ReadArchive({.job = job.id}, [&read](auto records) { read.set_value(records); });
  const auto records = read.get_future().get();
  ASSERT_TRUE(records.ok()) << records.status().ToString();
  EXPECT_EQ(records->at(0).job, job);
  EXPECT_THAT(records->at(0).attempts, SizeIs(200));
  ASSERT_TRUE(CommitAndWait(*store, {DeleteArchivedJob{job.id}}).ok());
  EXPECT_THAT(KeysUnder("archive/"), IsEmpty());
  EXPECT_THAT(KeysUnder("archive-index/"), IsEmpty());
}

class EtcdArchiveTest : public EtcdStoreTest {
 protected:
  static JobRecord Ended(int number) {
    JobRecord job = JobWithSpec(std::to_string(1000 + number), "name: a\n");
    job.submit_order = static_cast<std::uint64_t>(number + 1);
    return job;
  }
  static void Put(EtcdStore& store, int first, int count) {
    std::vector<StoreOperation> operations;
    for (int i = first; i < first + count; ++i) operations.push_back(PutJob{Ended(i)});
    ASSERT_TRUE(CommitAndWait(store, std::move(operations)).ok());
  }
  static std::vector<StoreOperation> Archiving(int first, int count) {
    std::vector<StoreOperation> operations;
    for (int i = first; i < first + count; ++i)
      operations.push_back(ArchiveJob{ArchivedJobOf(Ended(i))});
    return operations;
  }
  static std::vector<ArchivedRecords> Read(EtcdStore& store, ArchiveQuery query) {
    std::promise<Result<std::vector<ArchivedRecords>>> read;
    store.ReadArchive(std::move(query), [&read](auto records) { read.set_value(records); });
    const auto records = read.get_future().get();
    EXPECT_TRUE(records.ok()) << records.status().ToString();
    return records.ok() ? *records : std::vector<ArchivedRecords>{};
  }
};

TEST_F(EtcdArchiveTest, JobsFillOnePackAfterTheOtherAlsoAfterAStart) {
  for (int first = 0; first < 160; first += 40) {
    const auto store = Open();
    Put(*store, first, 40);
    ASSERT_TRUE(CommitAndWait(*store, Archiving(first, 30)).ok());
    ASSERT_TRUE(CommitAndWait(*store, Archiving(first + 30, 10)).ok());
  }
  EXPECT_THAT(KeysUnder("archive/"), SizeIs(3)) << "64, 64 and 32";
  EXPECT_THAT(KeysUnder("archive-index/"), SizeIs(3));
  EXPECT_THAT(KeysUnder("jobs/"), IsEmpty());
  const auto store = Open();
  const std::vector<ArchivedRecords> page = Read(*store, {});
  ASSERT_THAT(page, SizeIs(160));
  for (int i = 0; i < 160; ++i) EXPECT_EQ(page[static_cast<std::size_t>(i)].job, Ended(159 - i));
}

TEST_F(EtcdArchiveTest, JobsThatALeaderWasArchivingWhenItEndedAreThereOnce) {
  for (const bool is_named : {false, true}) {
    LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
    const auto store = Open(OptionsOver(proxy));
    const int first = is_named ? 300 : 0;
    Put(*store, first, 300);
    if (!is_named) proxy.Set(Mode::kLoseRequests);
    auto done = CommitLater(*store, Archiving(first, 300));
    if (is_named) {
      ASSERT_TRUE(
          Eventually([this] { return !ValueOf("staged").empty(); }, std::chrono::seconds(60)));
    }
    proxy.Set(Mode::kLoseRequests);
    EndLeadership();
    {
      const StoredState state = Stored();
      std::set<JobId> jobs;
      for (const JobRecord& job : state.jobs) jobs.insert(job.id);
      for (const ArchivedJob& job : state.archived) jobs.insert(job.id);
      EXPECT_THAT(jobs, SizeIs(first + 300));
      EXPECT_EQ(state.jobs.size() + state.archived.size(), jobs.size()) << "none is there twice";
      EXPECT_EQ(state.archived.size(), is_named ? 300u : 0u);
    }
    proxy.Set(Mode::kPass);
    EXPECT_EQ(done.get().ok(), is_named);
  }
}

TEST_F(EtcdArchiveTest, APackIsGoneWithItsLastJob) {
  const auto store = Open();
  Put(*store, 0, 70);
  ASSERT_TRUE(CommitAndWait(*store, Archiving(0, 70)).ok());
  std::vector<StoreOperation> remove;
  for (int i = 0; i < 65; ++i) remove.push_back(DeleteArchivedJob{Ended(i).id});
  ASSERT_TRUE(CommitAndWait(*store, std::move(remove)).ok());
  EXPECT_THAT(KeysUnder("archive/"), SizeIs(1));
  EXPECT_THAT(KeysUnder("archive-index/"), SizeIs(1));
  EXPECT_THAT(Read(*store, {}), SizeIs(5));
}

TEST_F(EtcdArchiveTest, APackThatCannotBeReadIsNamed) {
  {
    const auto store = Open();
    Put(*store, 0, 1);
    ASSERT_TRUE(CommitAndWait(*store, Archiving(0, 1)).ok());
  }
  Change(EtcdPut(prefix_ + "archive-index/0000000000000001", "{}"));
  const auto store = EtcdStore::Open(Options());
  ASSERT_TRUE(store.ok());
  const Status status = (*store)->Load().status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(prefix_ + "archive-index/0000000000000001"));
}

TEST_F(EtcdStoreTest, ANamedStageIsCompletedByTheNextLeaderAndAnotherOneRemoved) {
  Open();
  const auto part = [](const std::string& key, const std::string& value) {
    etcdserverpb::TxnRequest request;
    *request.add_success() = EtcdPut(key, value);
    return request.SerializeAsString();
  };
  const std::string named = prefix_ + "stage/0000000000000001.0000000000000005/";
  const std::string orphan = prefix_ + "stage/0000000000000001.0000000000000009/";
  for (int i = 0; i < 3; ++i) {
    const JobRecord job = std::get<PutJob>(NumberedJob(i)).job;
    Change(EtcdPut(named + NumberedName(static_cast<std::uint64_t>(i)),
                   part(prefix_ + "jobs/" + job.id.value + "/record", Encode(job))));
    Change(EtcdPut(orphan + NumberedName(static_cast<std::uint64_t>(i)),
                   part(prefix_ + "jobs/orphan/record", Encode(job))));
  }
  Change(EtcdPut(prefix_ + "staged", named));
  EXPECT_THAT(Stored().jobs, SizeIs(3));
  EXPECT_THAT(KeysUnder("stage"), IsEmpty());
}

TEST_F(EtcdStoreTest, AStageThatIsNamedCountsAlsoWhenTheLeaderEnds) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  EtcdStoreOptions options = OptionsOver(proxy);
  auto store = Open(std::move(options));
  auto done = CommitLater(*store, Events(1, 2000, 0));
  ASSERT_TRUE(Eventually([this] { return !ValueOf("staged").empty(); }, std::chrono::seconds(60)));
  proxy.Set(Mode::kLoseRequests);
  EndLeadership();
  EXPECT_THAT(Stored().events, SizeIs(2000));
  proxy.Set(Mode::kPass);
  EXPECT_TRUE(done.get().ok());
  EXPECT_EQ(CommitAndWait(*store, {NumberedJob(1)}).code(), StatusCode::kAborted);
}

TEST_F(EtcdStoreTest, OldEventsAndOldLinesOfTheAuditTrailAreRemoved) {
  EtcdStoreOptions options = Options();
  options.kept_events = 100;
  options.kept_audit = 50;
  const auto store = Open(std::move(options));
  AuditHead head;
  for (int i = 0; i < 10; ++i) {
    std::vector<StoreOperation> operations =
        Events(static_cast<std::uint64_t>(100 * i + 1), 100, 0);
    for (int line = 0; line < 60; ++line) {
      std::string sealed = SealAuditEntry({.operation = "Cancel", .object = "job"}, &head);
      operations.push_back(AppendAudit{head.seq, std::move(sealed)});
    }
    ASSERT_TRUE(CommitAndWait(*store, std::move(operations)).ok());
  }
  ASSERT_TRUE(CommitAndWait(*store, {}).ok());
  EXPECT_LT(KeysUnder("events/").size(), 500u);
  EXPECT_GE(KeysUnder("events/").size(), 100u);
  EXPECT_LT(KeysUnder("audit/").size(), 350u);
  EXPECT_GE(KeysUnder("audit/").size(), 50u);
}

class EtcdExportTest : public EtcdStoreTest {
 protected:
  std::unique_ptr<EtcdExport> Export(const std::string& folder) const {
    auto exporting = EtcdExport::Start({.access = EtcdServerForTest::Shared().access(),
                                        .prefix = prefix_,
                                        .dir = dir_ / folder,
                                        .host = "n1",
                                        .interval = std::chrono::milliseconds(10),
                                        .file_bytes = 4000});
    EXPECT_TRUE(exporting.ok()) << exporting.status().ToString();
    return exporting.ok() ? *std::move(exporting) : nullptr;
  }
  std::vector<std::string> FilesOf(const std::string& folder, const std::string& kind) const {
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(dir_ / folder))
      if (entry.path().filename().string().starts_with(kind)) files.insert(entry.path().string());
    return {files.begin(), files.end()};
  }
  // All files of the kind, one after the other.
  std::vector<std::string> LinesOf(const std::string& folder, const std::string& kind) const {
    std::vector<std::string> lines;
    for (const std::string& file : FilesOf(folder, kind)) {
      std::ifstream in(file);
      for (std::string line; std::getline(in, line);) lines.push_back(line);
    }
    return lines;
  }
  void CommitAudited(EtcdStore& store, int count) {
    std::vector<StoreOperation> operations = Events(next_event_, count, 0);
    next_event_ += static_cast<std::uint64_t>(count);
    for (int line = 0; line < count; ++line) {
      trail_.push_back(SealAuditEntry({.operation = "Cancel", .object = "job"}, &head_));
      operations.push_back(AppendAudit{head_.seq, trail_.back()});
    }
    ASSERT_TRUE(CommitAndWait(store, std::move(operations)).ok());
  }

  const TempDirForTest dir_;
  AuditHead head_;
  std::vector<std::string> trail_;
  std::uint64_t next_event_ = 1;
};

TEST_F(EtcdExportTest, WhatIsRemovedIsOnTheDisksOfTwoCoordinators) {
  EtcdStoreOptions options = Options();
  options.kept_audit = 10;
  options.kept_events = 10;
  options.exports = 2;
  const auto store = Open(std::move(options));
  auto first = Export("first");
  {
    const auto second = Export("second");  // which is away then
    ASSERT_TRUE(Eventually([this] { return KeysUnder("exported/").size() == 2; }));
  }
  for (int i = 0; i < 6; ++i) CommitAudited(*store, 100);
  ASSERT_TRUE(Eventually([this] { return LinesOf("first", "audit").size() == 600; }));
  EXPECT_THAT(KeysUnder("audit/"), SizeIs(600)) << "one disk is not enough";
  const auto second = Export("second");
  ASSERT_TRUE(Eventually(
      [&] {
        CommitAudited(*store, 1);
        return KeysUnder("audit/").size() < 300 && KeysUnder("events/").size() < 300;
      },
      std::chrono::seconds(60)));
  EXPECT_GE(KeysUnder("audit/").size(), 10u);
  for (const char* folder : {"first", "second"}) {
    ASSERT_TRUE(Eventually([&] { return LinesOf(folder, "audit").size() == trail_.size(); }));
    EXPECT_EQ(LinesOf(folder, "audit"), trail_);
    EXPECT_TRUE(Eventually([&] { return LinesOf(folder, "events").size() == next_event_ - 1; }));
  }
}

TEST_F(EtcdExportTest, AnExportThatACrashCutGoesOnAfterTheLastWholeLine) {
  const auto store = Open();
  CommitAudited(*store, 30);
  {
    const auto exporting = Export("first");
    ASSERT_TRUE(Eventually([this] { return LinesOf("first", "audit").size() == 30; }));
  }
  std::ofstream(FilesOf("first", "audit").back(), std::ios::app) << trail_[5].substr(0, 40);
  std::ofstream(dir_ / "first/events-9999999999999999.jsonl");  // begun, and killed
  CommitAudited(*store, 30);
  const auto exporting = Export("first");
  ASSERT_TRUE(Eventually([this] { return LinesOf("first", "audit").size() == 60; }));
  EXPECT_EQ(LinesOf("first", "audit"), trail_);
  EXPECT_THAT(FilesOf("first", "audit"), SizeIs(2)) << "no file grows without an end";
}

TEST_F(EtcdExportTest, AStoreThatWasRestoredKeepsItsLinesUntilTheFolderIsMovedAway) {
  const auto store = Open();
  CommitAudited(*store, 30);
  {
    const auto exporting = Export("first");
    ASSERT_TRUE(Eventually([this] { return LinesOf("first", "audit").size() == 30; }));
  }
  const EtcdKeys keys(prefix_);
  Change(EtcdDelete(keys.Numbered("audit/", 21), keys.Numbered("audit/", 31)));
  const auto exporting = Export("first");
  ASSERT_TRUE(Eventually([this] {
    const std::vector<std::string> notes = KeysUnder("exported/");
    return notes.size() == 1 && ValueOf(notes[0].substr(prefix_.size())) == "0 30";
  }));
}

TEST_F(EtcdExportTest, LinesThatWereGoneBeforeTheExportAreAGapAndNoEnd) {
  const auto store = Open();
  CommitAudited(*store, 30);
  Change(EtcdDelete(EtcdKeys(prefix_).Numbered("audit/", 1),
                    EtcdKeys(prefix_).Numbered("audit/", 11)));
  const auto exporting = Export("first");
  ASSERT_TRUE(Eventually([this] { return LinesOf("first", "audit").size() == 20; }));
  EXPECT_EQ(LinesOf("first", "audit").front(), trail_[10]);
}

TEST_F(EtcdStoreTest, TheHistoryOfKeysIsCompacted) {
  EtcdStoreOptions options = Options();
  options.compaction = Duration::zero();
  const auto store = Open(std::move(options));
  etcdserverpb::RangeRequest request;
  request.set_key(prefix_ + "epoch");
  const auto first = client_->Range(request, std::chrono::seconds(10));
  ASSERT_TRUE(first.ok());
  request.set_revision(first->header().revision());
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(CommitAndWait(*store, {NumberedJob(i)}).ok());
  EXPECT_TRUE(Eventually([&] {
    return client_->Range(request, std::chrono::seconds(10)).status().code() ==
           StatusCode::kOutOfRange;
  }));
}

TEST_F(EtcdStoreTest, TheHistoryOfManyChangesIsCompactedAtOnce) {
  EtcdStoreOptions options = Options();
  options.compaction = std::chrono::hours(1);
  const auto store = Open(std::move(options));
  etcdserverpb::RangeRequest request;
  request.set_key(prefix_ + "epoch");
  request.set_revision(client_->Range(request, kEtcdAnswer)->header().revision());
  JobRecord job = JobWithSpec("a", std::string(500'000, 'x'));
  const auto change = [&] {
    job.spec_yaml[0] ^= 1;
    return CommitAndWait(*store, {PutJob{job}}).ok();
  };
  EXPECT_TRUE(Eventually([&] {
    return !change() ||
           client_->Range(request, kEtcdAnswer).status().code() == StatusCode::kOutOfRange;
  }));
}

TEST_F(EtcdStoreTest, PagesOfKeysThatLieUnevenlyAreReadInOrder) {
  std::vector<std::string> keys;
  for (int i = 0; i < 5000; ++i) {
    const std::string number = NumberedName(static_cast<std::uint64_t>(i));
    keys.push_back("k/" + (i % 7 == 0   ? "0/" + number
                           : i % 3 == 0 ? number.substr(12) + "/\xff"
                                        : "z" + number));
  }
  std::ranges::sort(keys);
  for (std::size_t i = 0; i < keys.size(); i += 100) {
    etcdserverpb::TxnRequest request;
    for (std::size_t k = i; k < i + 100; ++k)
      *request.add_success() =
          EtcdPut(prefix_ + keys[k], std::string(k % 50 == 0 ? 20'000 : 10, 'v'));
    ASSERT_TRUE(client_->Transact(request, kEtcdAnswer).ok());
  }
  std::vector<std::string> expected;
  for (const std::string& key : keys) expected.push_back(prefix_ + key);
  EXPECT_EQ(KeysUnder("k/"), expected);
}

TEST_F(EtcdStoreTest, AStoreOfAnotherFormatIsRefusedAndLeft) {
  Change(EtcdPut(prefix_ + "format", "7"));
  const auto store = EtcdStore::Open(Options());
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(store.status().message(), HasSubstr("has format 7"));
  EXPECT_THAT(KeysUnder(""), SizeIs(1));
}

TEST_F(EtcdStoreTest, ARecordThatCannotBeReadIsNamed) {
  Open();
  Change(EtcdPut(prefix_ + "nodes/n1", "{"));
  const auto store = EtcdStore::Open(Options());
  ASSERT_TRUE(store.ok());
  EXPECT_THAT((*store)->Load().status().message(), HasSubstr(prefix_ + "nodes/n1"));
}

EtcdClient::MemberStatus Member(const std::string& address, std::int64_t file_mib,
                                std::int64_t used_mib, bool leads = false) {
  return {.address = address,
          .file_bytes = file_mib << 20,
          .used_bytes = used_mib << 20,
          .leads = leads};
}

TEST(EtcdDefragmenterTest, TheMemberWhoseFileIsMostlyFreeHasItsTurnAndTheLeaderComesLast) {
  constexpr std::int64_t kLeast = 64 << 20;
  EXPECT_EQ(MemberToDefragment({}, kLeast), std::nullopt);
  EXPECT_EQ(MemberToDefragment({Member("a", 400, 301, true), Member("b", 63, 0)}, kLeast),
            std::nullopt);
  EXPECT_EQ(MemberToDefragment({Member("a", 400, 299)}, kLeast), "a");
  EXPECT_EQ(MemberToDefragment(
                {Member("a", 400, 100, true), Member("b", 400, 350), Member("c", 64, 1)}, kLeast),
            "c");
  EXPECT_EQ(MemberToDefragment({Member("a", 400, 100, true), Member("b", 400, 350)}, kLeast), "a");
}

TEST_F(EtcdStoreTest, AFileThatIsMostlyFreeIsMadeSmaller) {
  const std::string value(1 << 20, 'v');
  for (int i = 0; i < 8; ++i) Change(EtcdPut(prefix_ + "large", value));
  Change(EtcdDelete(prefix_ + "large"));
  const auto file_bytes = [this] { return client_->Members(kEtcdAnswer)->front().file_bytes; };
  const std::int64_t before = file_bytes();
  etcdserverpb::RangeRequest any;
  any.set_key(prefix_);
  ASSERT_TRUE(
      client_->Compact(client_->Range(any, kEtcdAnswer)->header().revision(), kEtcdAnswer).ok());
  std::promise<std::string> noted;
  const auto defragmenter =
      EtcdDefragmenter::Start({.access = EtcdServerForTest::Shared().access(),
                               .interval = std::chrono::milliseconds(10),
                               .least_bytes = 4 << 20,
                               .note = [&noted, first = true](const std::string& text) mutable {
                                 if (std::exchange(first, false)) noted.set_value(text);
                               }});
  ASSERT_TRUE(defragmenter.ok()) << defragmenter.status().ToString();
  EXPECT_THAT(noted.get_future().get(), HasSubstr("defragments 127.0.0.1:"));
  EXPECT_TRUE(Eventually([&] { return file_bytes() < before / 2; }));
}

TEST(EtcdClientTest, AMemberThatIsGoneIsPassedOver) {
  EtcdAccess access = EtcdServerForTest::Shared().access();
  access.members.insert(access.members.begin(), {"127.0.0.1:1", /*tls=*/false});
  const auto store = EtcdStore::Open({.access = std::move(access),
                                      .prefix = EtcdServerForTest::NewPrefix(),
                                      .lease_seconds = 30,
                                      .allow_unsafe = true});
  ASSERT_TRUE(store.ok()) << store.status().ToString();
  EXPECT_TRUE(CommitAndWait(**store, {NumberedJob(1)}).ok());
}

TEST(EtcdClientTest, AMemberThatHasStoppedCostsOneCallHalfASecondAndLaterOnesNothing) {
  LossyProxyForTest proxy(EtcdServerForTest::Shared().address());
  EtcdAccess access = EtcdServerForTest::Shared().access();
  access.members.insert(access.members.begin(), {proxy.address(), /*tls=*/false});
  const auto client = EtcdClient::Open(access, std::chrono::seconds(10));
  ASSERT_TRUE(client.ok());
  etcdserverpb::RangeRequest request;
  request.set_key("/none");
  const auto seconds = [&] {
    const TimePoint begin = SystemClock().Now();
    EXPECT_TRUE((*client)->Range(request, std::chrono::seconds(10)).ok());
    return ToSeconds(SystemClock().Now() - begin);
  };
  seconds();
  proxy.Set(Mode::kLoseAnswers);
  EXPECT_GE(seconds(), 0.5);
  EXPECT_LT(seconds(), 0.5);
}

}  // namespace
}  // namespace muster
