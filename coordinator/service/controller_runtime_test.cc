#include "coordinator/service/controller_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/runtime/event_loop.h"
#include "common/runtime/testing/loop_thread.h"
#include "coordinator/store/testing/memory_store.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSpec[] =
    "name: a\n"
    "workdir: /tmp/muster-never-written\n"
    "resources: {nodes: 1, ranks_per_node: 1}\n"
    "command: [/bin/true]\n";

// Keeps what is released.
struct RecordingSink : EffectSink {
  void SendToWorker(const WorkerSend& send) override { sends.push_back(send); }
  void CloseWorker(const CloseSession& close) override { closes.push_back(close); }
  void OnJobsChanged(const std::vector<JobId>& jobs) override { changes += jobs.size(); }
  void OnEvents(const std::vector<EventRecord>& news) override {
    for (const EventRecord& event : news) events.push_back(event.kind);
  }
  void OnDecided(const Effects&) override {}
  void OnDiskBehind(std::size_t, std::size_t) override { ++stalls; }
  void OnUnread(const JobId&, const Status&) override {}
  void OnHigherEpoch(std::uint64_t epoch) override { higher_epoch = epoch; }
  void OnStoreFailed(const Status& status) override { failure = status; }

  template <typename Message>
  int CountSends() const {
    int count = 0;
    for (const WorkerSend& send : sends) count += std::holds_alternative<Message>(send.message);
    return count;
  }
  std::vector<WorkerSend> sends;
  std::vector<CloseSession> closes;
  std::vector<std::string> events;
  std::size_t changes = 0;
  int stalls = 0;
  std::uint64_t higher_epoch = 0;
  Status failure;
};

class ControllerRuntimeTest : public ::testing::Test {
 protected:
  ControllerRuntimeTest() {
    OnLoop([this] { ASSERT_TRUE(runtime_.Restore().ok()); });
    OnLoop([this] { runtime_.Handle(HelloOf("n1")); });
  }
  ~ControllerRuntimeTest() override {
    OnLoop([this] { runtime_.Close(Unavailable("end of the test")); });
  }

  void OnLoop(const std::function<void()>& function) { thread_.Do(function); }
  static WorkerHello HelloOf(const std::string& node) {
    WorkerHello event;
    event.session = 7;
    event.hello.protocol_version = kProtocolVersion;
    event.hello.min_protocol_version = kProtocolVersion;
    event.hello.node = NodeName{node};
    event.hello.address = "127.0.0.1";
    event.hello.host_id = "host";
    event.hello.slots = 1;
    event.hello.instance = "i";
    return event;
  }
  void Submit(const std::string& id, const std::string& key) {
    runtime_.Ask(SubmitRequested{.request = 0,
                                 .spec_yaml = kSpec,
                                 .key = key,
                                 .new_id = JobId{id},
                                 .spec = ParseJobSpec(kSpec)},
                 [this](const Reply& reply) { replies_.push_back(reply); });
  }

  EventLoop loop_;
  MemoryStore store_;
  RecordingSink sink_;
  ControllerRuntime runtime_{MakeLoopHandle(loop_), store_, sink_, ControllerOptions{},
                             SystemClock()};
  std::vector<Reply> replies_;
  LoopThreadForTest thread_{loop_};
};

// So a leader that stood still beyond its lease answers only once it knows that it leads on.
TEST_F(ControllerRuntimeTest, NothingIsReleasedWhileTheStoreMayNotBeCurrent) {
  bool read = false;
  OnLoop([&] {
    store_.SetCurrent(false);
    Submit("0000000001", "");
    runtime_.AfterDurable([&read](const Status& status) { read = status.ok(); });
  });
  OnLoop([&] {
    runtime_.OnStoreChanged();
    EXPECT_TRUE(replies_.empty());
    EXPECT_FALSE(read);
    EXPECT_EQ(sink_.CountSends<Prepare>(), 0);
    store_.SetCurrent(true);
    runtime_.OnStoreChanged();
    EXPECT_EQ(replies_.size(), 1u);
    EXPECT_TRUE(read);
    EXPECT_EQ(sink_.CountSends<Prepare>(), 1);
  });
}

TEST_F(ControllerRuntimeTest, WithoutRoomRequestsAreRefusedAndQueriesAnswered) {
  int reads = 0;
  const auto read = [&reads](const Status& status) { reads += status.ok() ? 1 : 0; };
  OnLoop([&] {
    store_.Hold();
    Submit("0000000001", "");
    runtime_.AfterDurable(read);
    store_.SetRoom(ResourceExhausted("no space"));
  });
  OnLoop([&] {
    EXPECT_TRUE(replies_.empty());
    EXPECT_EQ(reads, 0);
    runtime_.OnStoreChanged();
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(replies_[0].status.message(), HasSubstr("takes effect once there is room"));
    EXPECT_EQ(reads, 1);
    runtime_.AfterDurable(read);
    EXPECT_EQ(reads, 2);
    Status traced;
    runtime_.AfterTrace([&traced](const Status& status) { traced = status; });
    EXPECT_EQ(traced.message(), "no space");
    Submit("0000000002", "");
    ASSERT_EQ(replies_.size(), 2u);
    EXPECT_EQ(replies_[1].status.message(), "no space");
    EXPECT_EQ(sink_.CountSends<Prepare>(), 0);
    store_.SetRoom(OkStatus());
    store_.ReleaseHeld();
  });
  OnLoop([&] {
    EXPECT_EQ(sink_.CountSends<Prepare>(), 1) << "of the job that was decided before";
    Submit("0000000003", "");
  });
  OnLoop([&] { EXPECT_TRUE(replies_.back().status.ok()); });
}

TEST_F(ControllerRuntimeTest, NothingIsReleasedBeforeItIsDurable) {
  OnLoop([this] {
    store_.Hold();
    Submit("0000000001", "");
  });
  OnLoop([this] {
    EXPECT_TRUE(replies_.empty());
    EXPECT_EQ(sink_.CountSends<Prepare>(), 0);
    EXPECT_THAT(sink_.events, Not(Contains("submitted")));
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_TRUE(replies_[0].status.ok()) << replies_[0].status.ToString();
    EXPECT_THAT(sink_.events, Contains("submitted"));
    EXPECT_EQ(sink_.CountSends<Prepare>(), 1);
    EXPECT_GT(sink_.changes, 0u);
  });
}

TEST_F(ControllerRuntimeTest, ARequestWhoseCallerHasGoneGoesOnUnanswered) {
  OnLoop([this] {
    store_.Hold();
    const RequestId request =
        runtime_.Ask(SubmitRequested{.request = 0,
                                     .spec_yaml = kSpec,
                                     .new_id = JobId{"0000000001"},
                                     .spec = ParseJobSpec(kSpec)},
                     [this](const Reply& reply) { replies_.push_back(reply); });
    EXPECT_EQ(runtime_.pending_requests(), 1u);
    runtime_.Forget(request);
    EXPECT_EQ(runtime_.pending_requests(), 0u);
    runtime_.Forget(request);
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    EXPECT_TRUE(replies_.empty());
    EXPECT_TRUE(runtime_.controller().FindJob("0000000001").ok());
  });
}

TEST_F(ControllerRuntimeTest, ARepeatedSubmitIsAcknowledgedAfterTheCommitOfTheFirst) {
  OnLoop([this] {
    store_.Hold();
    Submit("0000000001", "key");
    Submit("0000000002", "key");
  });
  OnLoop([this] {
    EXPECT_TRUE(replies_.empty());
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 2u);
    EXPECT_EQ(std::get<SubmitAccepted>(replies_[1].body).id.value, "0000000001");
    EXPECT_TRUE(std::get<SubmitAccepted>(replies_[1].body).existed);
  });
}

TEST_F(ControllerRuntimeTest, AQueryWaitsForWhatItSaw) {
  std::vector<Status> seen;
  OnLoop([&] {
    store_.Hold();
    Submit("0000000001", "");
    EXPECT_TRUE(runtime_.controller().FindJob("0000000001").ok());
    runtime_.AfterDurable([&](const Status& status) { seen.push_back(status); });
  });
  OnLoop([&] {
    EXPECT_TRUE(seen.empty());
    store_.ReleaseHeld();
  });
  OnLoop([&] {
    ASSERT_EQ(seen.size(), 1u);
    EXPECT_TRUE(seen[0].ok());
    runtime_.AfterDurable([&](const Status& status) { seen.push_back(status); });
    EXPECT_EQ(seen.size(), 2u) << "nothing is pending, so it need not wait";
  });
}

TEST_F(ControllerRuntimeTest, AFailedCommitReleasesNothingAndAsksForTheEnd) {
  Status seen;
  OnLoop([&] {
    store_.FailNext(ResourceExhausted("disk full"));
    Submit("0000000001", "");
    runtime_.AfterDurable([&](const Status& status) { seen = status; });
  });
  OnLoop([&] {
    EXPECT_EQ(sink_.failure.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(sink_.CountSends<Prepare>(), 0);
    EXPECT_TRUE(replies_.empty());
    runtime_.Close(Unavailable("the disk is full"));
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(seen.code(), StatusCode::kUnavailable);
  });
}

// A rank of a running job has failed: its Abort does not wait for the disk.
class FailedRankTest : public ControllerRuntimeTest {
 protected:
  FailedRankTest() {
    const JobId job{"0000000001"};
    OnLoop([this] {
      WorkerHello hello = HelloOf("n2");
      hello.session = 8;
      hello.hello.slots = 2;
      runtime_.Handle(hello);
    });
    OnLoop([&] { Submit(job.value, ""); });
    session_ = 0;
    OnLoop([&] {
      for (const WorkerSend& send : sink_.sends)
        if (std::holds_alternative<Prepare>(send.message)) session_ = send.session;
      Say(Prepared{.job = job, .generation = 1, .master_port = 29500});
    });
    OnLoop([&] { Say(RankStarted{.job = job, .generation = 1, .pid = 12}); });
  }
  void Say(WorkerMessage message) {
    runtime_.Handle(WorkerMessageReceived{session_, std::move(message)});
  }
  void Fail() {
    Say(RankExited{
        .job = JobId{"0000000001"}, .generation = 1, .rank = 0, .end = {.exit = {.exit_code = 1}}});
  }
  SessionId session_;
};

TEST_F(FailedRankTest, ItsAbortIsSentBeforeItsCommit) {
  OnLoop([this] {
    store_.Hold();
    Fail();
    EXPECT_EQ(sink_.CountSends<Abort>(), 1);
    store_.ReleaseHeld();
  });
  OnLoop([this] { EXPECT_EQ(sink_.CountSends<Abort>(), 1) << "sent once"; });
}

TEST_F(FailedRankTest, ItsAbortDoesNotOvertakeWhatWaitsForTheDisk) {
  OnLoop([this] {
    store_.Hold();
    Submit("0000000002", "");
    Fail();
    EXPECT_EQ(sink_.CountSends<Prepare>(), 1);
    EXPECT_EQ(sink_.CountSends<Abort>(), 0);
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    EXPECT_EQ(sink_.CountSends<Prepare>(), 2);
    EXPECT_EQ(sink_.CountSends<Abort>(), 1);
  });
}

TEST_F(ControllerRuntimeTest, AfterClosingRequestsAreRefused) {
  OnLoop([this] {
    runtime_.Close(Unavailable("closing"));
    Submit("0000000001", "");
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(runtime_.refused_requests(), 1u);
  });
}

TEST_F(ControllerRuntimeTest, RequestsThatWaitAreBounded) {
  OnLoop([this] {
    store_.Hold();
    for (std::size_t i = 0; i < RuntimeLimits{}.requests; ++i) {
      Submit("0000000001", "same key");
    }
    EXPECT_TRUE(replies_.empty());
    Submit("0000000002", "same key");
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kResourceExhausted);
    store_.ReleaseHeld();
  });
}

// The effect of a stalled disk on clients and workers.
class StalledHostTest : public ControllerRuntimeTest {
 protected:
  StalledHostTest() {
    OnLoop([this] { store_.Hold(); });
  }
  // On the loop: `count` decisions that the disk does not take.
  void Decide(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      runtime_.Handle(
          ClusterNote{.kind = "note", .severity = Severity::kInfo, .message = std::to_string(i)});
  }
  std::size_t Notes() const {
    return static_cast<std::size_t>(std::count(sink_.events.begin(), sink_.events.end(), "note"));
  }
  bool Knows(const std::string& node) const {
    const auto nodes = runtime_.controller().Nodes();
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const NodeView& view) { return view.record->name.value == node; });
  }
  static WorkerHello HelloOf(const std::string& node, SessionId session) {
    WorkerHello hello = ControllerRuntimeTest::HelloOf(node);
    hello.session = session;
    return hello;
  }
};

TEST_F(StalledHostTest, RequestsAreRefusedWhileTooMuchWaitsAndTakenAfterwards) {
  OnLoop([this] {
    Decide(RuntimeLimits{}.uncommitted);
    Submit("0000000001", "");
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(replies_[0].status.message(), HasSubstr("try again"));
    EXPECT_EQ(runtime_.refused_requests(), 1u);
    // Messages of workers are still handled.
    runtime_.Handle(HelloOf("n2", 8));
    EXPECT_TRUE(Knows("n2"));
    store_.ReleaseHeld();
  });
  OnLoop([this] { Submit("0000000001", ""); });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 2u);
    EXPECT_TRUE(replies_[1].status.ok()) << replies_[1].status.ToString();
  });
}

TEST_F(StalledHostTest, WhatWorkersSayWaitsAndIsNotLost) {
  constexpr std::size_t kMore = 100;
  std::vector<int> taken;
  OnLoop([&] {
    Decide(RuntimeLimits{}.held_back + kMore);
    runtime_.Handle(HelloOf("n2", 8), [&] { taken.push_back(1); });
    runtime_.Handle(WorkerMessageReceived{8, Heartbeat{}}, [&] { taken.push_back(2); });
    EXPECT_EQ(runtime_.waiting_events(), kMore + 2);
    EXPECT_TRUE(taken.empty()) << "the stream must not read on";
    EXPECT_EQ(sink_.stalls, 1);
    EXPECT_FALSE(Knows("n2"));
    EXPECT_TRUE(sink_.failure.ok());
  });
  OnLoop([&] {
    EXPECT_EQ(Notes(), 0u);
    store_.ReleaseHeld();
  });
  OnLoop([] {});  // what was posted by what had waited
  OnLoop([&] {
    EXPECT_EQ(runtime_.waiting_events(), 0u);
    EXPECT_EQ(taken, (std::vector<int>{1, 2}));
    EXPECT_TRUE(Knows("n2"));
    EXPECT_EQ(Notes(), RuntimeLimits{}.held_back + kMore);
    EXPECT_EQ(runtime_.held_back(), 0u);
  });
}

TEST_F(StalledHostTest, SessionsThatComeAndGoMeanwhileLeaveNothing) {
  OnLoop([this] {
    Decide(RuntimeLimits{}.held_back);
    for (SessionId session = 100; session < 1100; ++session) {
      runtime_.Handle(HelloOf("n2", session));
      runtime_.Handle(WorkerMessageReceived{session, Heartbeat{}});
      runtime_.Handle(WorkerStreamClosed{session});
    }
    EXPECT_EQ(runtime_.waiting_events(), 0u);
    // One that was there before has its end still.
    runtime_.Handle(WorkerMessageReceived{7, Heartbeat{}});
    runtime_.Handle(WorkerStreamClosed{7});
    EXPECT_EQ(runtime_.waiting_events(), 2u);
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    EXPECT_FALSE(Knows("n2"));
    EXPECT_EQ(runtime_.waiting_events(), 0u);
  });
}

TEST_F(StalledHostTest, WhatNeedsNoCommitIsNotHeapedUp) {
  OnLoop([this] {
    store_.ReleaseHeld();
    Submit("0000000001", "");
  });
  OnLoop([this] {
    store_.Hold();
    Decide(1);
    const std::size_t before = runtime_.held_back();
    Progress progress;
    progress.job = JobId{"0000000001"};
    progress.generation = 1;
    const std::size_t changes = sink_.changes;
    for (int i = 1; i <= 1000; ++i) {
      progress.ranks = {RankProgress{.rank = 0, .step = i}};
      runtime_.Handle(WorkerMessageReceived{7, progress});
    }
    // A message of a run that is not there is a figure and no more.
    progress.generation = 9;
    for (int i = 1; i <= 1000; ++i) runtime_.Handle(WorkerMessageReceived{7, progress});
    EXPECT_LE(runtime_.held_back(), before + 3);
    EXPECT_EQ(sink_.changes, changes) << "nothing is seen before its time";
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    EXPECT_EQ(runtime_.held_back(), 0u);
    EXPECT_EQ(runtime_.controller().FindJob("0000000001")->attempts->back().last_step, 1000);
  });
}

TEST_F(ControllerRuntimeTest, DoesNotStartWithQueuesThatItDoesNotAccept) {
  MemoryStore store;
  store.Commit({PutQueues{{3, "queues:\n  default: {color: red}\n"}}}, [](const Status&) {});
  OnLoop([&] {
    ControllerRuntime runtime(MakeLoopHandle(loop_), store, sink_, ControllerOptions{},
                              SystemClock());
    const Status status = runtime.Restore();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("version 3 of the queues, which is in force, is not "
                                            "accepted by this version of Muster (queues:2: "));
  });
}

TEST_F(ControllerRuntimeTest, DoesNotStartWithUsersThatItDoesNotAccept) {
  MemoryStore store;
  store.Commit({PutUsers{{3, "users:\n  ada: {color: red}\n"}}}, [](const Status&) {});
  OnLoop([&] {
    ControllerRuntime runtime(MakeLoopHandle(loop_), store, sink_, ControllerOptions{},
                              SystemClock());
    const Status status = runtime.Restore();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_THAT(status.message(), HasSubstr("version 3 of the users, which is in force, is not "
                                            "accepted by this version of Muster (users:2: "));
  });
}

// An archived job with a checkpoint, in a store with a runtime of its own.
class ArchivedJobTest : public ControllerRuntimeTest {
 protected:
  explicit ArchivedJobTest(const ControllerOptions& options = {})
      : with_archive_(MakeLoopHandle(loop_), archive_, read_, options, SystemClock()) {
    JobRecord job;
    job.id = JobId{"40000000aa"};
    job.state = JobState::kSucceeded;
    job.ended_unix_ms = SystemClock().UnixMillis();
    CheckpointRecord checkpoint;
    checkpoint.job = job.id;
    checkpoint.directory = "step-10";
    checkpoint.state = CheckpointState::kCommitted;
    archive_.Commit({PutJob{job}, PutCheckpoint{checkpoint}, ArchiveJob{ArchivedJobOf(job)}},
                    [](const Status&) {});
    OnLoop([this] {
      ASSERT_TRUE(with_archive_.Restore().ok());
      with_archive_.Handle(HelloOf("n1"));
    });
  }
  ~ArchivedJobTest() override {
    OnLoop([this] { with_archive_.Close(Unavailable("end of the test")); });
  }
  void Verify(const std::string& job) {
    with_archive_.Ask(VerifyRequested{.request = 0, .job = job},
                      [this](const Reply& reply) { replies_.push_back(reply); });
  }

  void Scrubbed(ScrubOutcome outcome) {
    ASSERT_EQ(read_.CountSends<ScrubCheckpoint>(), 1);
    const auto& order = std::get<ScrubCheckpoint>(read_.sends.back().message);
    with_archive_.Handle(
        WorkerMessageReceived{7, CheckpointScrubbed{.scrub_id = order.scrub_id,
                                                    .job = order.job,
                                                    .directory = order.checkpoint.directory,
                                                    .outcome = outcome,
                                                    .file = "",
                                                    .detail = ""}});
  }

  MemoryStore archive_;
  RecordingSink read_;
  ControllerRuntime with_archive_;
};

TEST_F(ArchivedJobTest, IsReadFromTheStoreAndItsResultIsWrittenThere) {
  OnLoop([this] { Verify("40000000aa"); });
  OnLoop([this] { Scrubbed(ScrubOutcome::kWhole); });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_TRUE(replies_[0].status.ok()) << replies_[0].status.ToString();
    EXPECT_EQ(std::get<CheckpointsVerified>(replies_[0].body).whole, 1);
  });
  archive_.ReadArchive({.job = JobId{"40000000aa"}}, [](const auto& read) {
    EXPECT_GT(read->at(0).checkpoints.at(0).verified_unix_ms, 0);
  });
}

// Its turn comes with every event.
class OftenScrubbedTest : public ArchivedJobTest {
 protected:
  OftenScrubbedTest()
      : ArchivedJobTest(ControllerOptions{.scrub_interval = std::chrono::nanoseconds(1)}) {}
};

TEST_F(OftenScrubbedTest, ItsNextTurnSeesTheDamageThatTheLastOneFound) {
  OnLoop([] {});
  OnLoop([this] { Scrubbed(ScrubOutcome::kDamaged); });
  OnLoop([] {});
  OnLoop([this] {
    EXPECT_THAT(read_.events, Contains("checkpoint_damaged"));
    EXPECT_EQ(read_.CountSends<ScrubCheckpoint>(), 1) << "it is not read again";
  });
}

TEST_F(ArchivedJobTest, IsRefusedIfTheStoreHasLostIt) {
  archive_.Commit({DeleteArchivedJob{JobId{"40000000aa"}}}, [](const Status&) {});
  OnLoop([this] { Verify("40000000aa"); });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kNotFound);
  });
}

}  // namespace
}  // namespace muster
