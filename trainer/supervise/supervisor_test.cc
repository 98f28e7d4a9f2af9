#include "trainer/supervise/supervisor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>

#include "common/base/json.h"

namespace muster {
namespace {

using nlohmann::json;

Deadline Soon() { return Deadline::After(std::chrono::seconds(5)); }

// Both ends: what the guardian holds and the rank's supervisor.
class SupervisorTest : public ::testing::Test {
 protected:
  SupervisorTest() {
    auto pair = PacketSocket::Pair();
    EXPECT_TRUE(pair.ok());
    guardian_ = std::move(pair->first);
    supervisor_ = std::make_unique<Supervisor>(
        pair->second.Release(),
        SupervisorHooks{[this] { Record([this] { lost_ = true; }); },
                        [this](std::string_view kind, std::string_view argument) {
                          Record([&] {
                            faults_.push_back(std::string(kind) + " " + std::string(argument));
                          });
                        }});
  }

  template <typename Change>
  void Record(Change change) {
    std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }

  json Heard() {
    const auto packet = guardian_.Receive(Soon());
    return packet.ok() ? json::parse(packet->data) : json(packet.status().ToString());
  }

  PacketSocket guardian_;
  std::unique_ptr<Supervisor> supervisor_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool lost_ = false;
  std::vector<std::string> faults_;
};

TEST_F(SupervisorTest, ReportsAreTheProtocolsMessages) {
  supervisor_->Formed(2);
  EXPECT_EQ(Heard(), json::parse(R"({"type":"formed","generation":2})"));
  supervisor_->Resumed(2, 40, ResumeSource::kCheckpoint, {{"step-00000050-g1", "rank 1: damaged"}});
  EXPECT_EQ(Heard(), json::parse(R"({"type":"resumed","generation":2,"step":40,"from":"checkpoint",
      "rejected":[{"directory":"step-00000050-g1","reason":"rank 1: damaged"}]})"));
  supervisor_->Resumed(2, 0, ResumeSource::kStart, {});
  EXPECT_EQ(Heard().at("from"), "start");
  supervisor_->Resumed(2, 44, ResumeSource::kSnapshot, {});
  EXPECT_EQ(Heard().at("from"), "snapshot");
  supervisor_->FirstStep(2, 41);
  EXPECT_EQ(Heard(), json::parse(R"({"type":"first_step","generation":2,"step":41})"));
  supervisor_->ShardWritten({.step = 50, .generation = 1, .directory = "step-00000050-g1"},
                            {1, "rank-00001.shard", 123, "xxh3:0123456789abcdef"});
  EXPECT_EQ(Heard(), json::parse(R"({"type":"shard_written","generation":1,"step":50,
      "directory":"step-00000050-g1","shard":{"rank":1,"file":"rank-00001.shard","bytes":123,
      "checksum":"xxh3:0123456789abcdef"}})"));
  supervisor_->ShardWritten({.directory = "d", .eval_loss = 2.5}, {});
  EXPECT_EQ(Heard().at("eval_loss"), 2.5);
  supervisor_->CheckpointFailed(2, 50, CheckpointTrouble::kDiskFull, "no room");
  EXPECT_EQ(Heard(), json::parse(R"({"type":"checkpoint_failed","generation":2,"step":50,
      "kind":"disk_full","reason":"no room"})"));
  supervisor_->Error(2, {FailureKind::kData, InvalidArgument("row 3")}, 12);
  EXPECT_EQ(Heard(), json::parse(R"({"type":"error","generation":2,"kind":"data",
      "message":"row 3","step":12})"));
  supervisor_->Note(2, "warning", "3 rows were truncated");
  EXPECT_EQ(Heard(), json::parse(R"({"type":"note","generation":2,"severity":"warning",
      "message":"3 rows were truncated"})"));
  supervisor_->Finished(2, 200, "/out/model");
  EXPECT_EQ(Heard(), json::parse(R"({"type":"finished","generation":2,"step":200,
      "model_dir":"/out/model"})"));
  supervisor_->Parked(2, 40);
  EXPECT_EQ(Heard(), json::parse(R"({"type":"parked","generation":2,"step":40})"));
  supervisor_->StandbyReady();
  EXPECT_EQ(Heard().at("type"), "standby_ready");
}

TEST_F(SupervisorTest, SegmentsTravelWithTheirDescriptors) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  supervisor_->HoldSegment(3, "seg", write_end.get());
  auto held = guardian_.Receive(Soon());
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(json::parse(held->data),
            json::parse(R"({"type":"segment","generation":3,"name":"seg"})"));
  ASSERT_EQ(held->fds.size(), 1u);
  ASSERT_TRUE(
      guardian_.Send(R"({"type":"segment","name":"seg"})", {held->fds[0].get()}, Soon()).ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"assign","generation":4,"environment":[]})").ok());
  ASSERT_TRUE(supervisor_->NextAssignment());
  const std::vector<HeldSegment> segments = supervisor_->TakeSegments();
  ASSERT_EQ(segments.size(), 1u);
  EXPECT_EQ(segments[0].name, "seg");
  EXPECT_EQ(write(segments[0].fd.get(), "x", 1), 1) << "it is the same file";
  EXPECT_TRUE(supervisor_->TakeSegments().empty());
  supervisor_->DropSegment(4, "seg");
  EXPECT_EQ(Heard().at("type"), "drop_segment");
}

TEST_F(SupervisorTest, AssignmentsWaitInTheirOrder) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd log(ends[0]), listen(ends[1]);
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd lock(ends[0]), other_lock(ends[1]);
  ASSERT_TRUE(guardian_
                  .Send(R"({"type":"assign","generation":3,"rendezvous_token":"aabb",
                            "environment":["RANK=1","A=b=c"],
                            "descriptors":["log","listen","lock","lock"]})",
                        {log.get(), listen.get(), lock.get(), other_lock.get()}, Soon())
                  .ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"assign","generation":4,"environment":[]})").ok());
  const std::optional<Assignment> first = supervisor_->NextAssignment();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->generation, 3);
  EXPECT_EQ(first->rendezvous_token, "aabb");
  EXPECT_EQ(first->environment, (std::map<std::string, std::string>{{"RANK", "1"}, {"A", "b=c"}}));
  EXPECT_TRUE(first->log.valid());
  EXPECT_TRUE(first->listen.valid());
  EXPECT_EQ(first->locks.size(), 2u);
  EXPECT_EQ(supervisor_->NextAssignment()->generation, 4);
  EXPECT_FALSE(supervisor_->has_assignment());
}

TEST_F(SupervisorTest, WhatIsNoAssignmentIsNoneAndTheNextOneCounts) {
  for (const char* broken : {R"({"type":"assign"})", R"({"type":"assign","generation":0})",
                             R"({"type":"assign","generation":2,"environment":["NOVALUE"]})",
                             R"({"type":"assign","generation":2,"environment":[7]})",
                             R"({"type":"assign","generation":2,"descriptors":["log"]})"}) {
    ASSERT_TRUE(guardian_.Send(broken).ok());
  }
  ASSERT_TRUE(guardian_.Send(R"({"type":"assign","generation":9})").ok());
  EXPECT_EQ(supervisor_->NextAssignment()->generation, 9);
}

// A fresh process differs from a standby by whether it has been given a rank already.
TEST_F(SupervisorTest, WhatWasSentBeforeItsStartIsThereAtOnce) {
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair->first.Send(R"({"type":"assign","generation":3})").ok());
  ASSERT_TRUE(pair->first.Send(R"({"type":"park","generation":3,"reason":"peer"})").ok());
  Supervisor supervisor(pair->second.Release(), {.on_lost = [] {}});
  EXPECT_TRUE(supervisor.has_assignment());
  EXPECT_EQ(supervisor.CalledOff(3), Cancelled("peer"));
}

TEST_F(SupervisorTest, AParkEndsAWaitForItAtOnce) {
  EXPECT_TRUE(supervisor_->AwaitCalledOff(3, Deadline::After(std::chrono::milliseconds(1))).ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"park","generation":3,"reason":"x"})").ok());
  EXPECT_EQ(supervisor_->AwaitCalledOff(3, Deadline::After(std::chrono::minutes(1))),
            Cancelled("x"));
}

TEST_F(SupervisorTest, AParkCallsOffItsGenerationAndAllBefore) {
  std::vector<Generation> through;
  supervisor_->OnPark([&](Generation generation, const Status& reason) {
    std::lock_guard lock(mutex_);
    EXPECT_EQ(reason.code(), StatusCode::kCancelled);
    through.push_back(generation);
    changed_.notify_all();
  });
  EXPECT_TRUE(supervisor_->CalledOff(1).ok());
  for (const int generation : {5, 5, 4}) {
    ASSERT_TRUE(
        guardian_.Send(json{{"type", "park"}, {"generation", generation}, {"reason", "x"}}.dump())
            .ok());
  }
  ASSERT_TRUE(guardian_.Send(R"({"type":"assign","generation":6})").ok());
  ASSERT_TRUE(supervisor_->NextAssignment());
  EXPECT_EQ(supervisor_->CalledOff(4).code(), StatusCode::kCancelled);
  EXPECT_EQ(supervisor_->CalledOff(5).code(), StatusCode::kCancelled);
  EXPECT_TRUE(supervisor_->CalledOff(6).ok());
  supervisor_->OnPark({});
  EXPECT_EQ(through, std::vector<Generation>{5}) << "repeats and older ones say nothing new";
  // A hook that is set later is called at once.
  supervisor_->OnPark([&](Generation generation, const Status&) { through.push_back(generation); });
  EXPECT_EQ(through, (std::vector<Generation>{5, 5}));
  supervisor_->OnPark({});
}

TEST_F(SupervisorTest, FaultsReachTheirHook) {
  ASSERT_TRUE(guardian_.Send(R"({"type":"fault","kind":"slow","argument":"0.3"})").ok());
  std::unique_lock lock(mutex_);
  ASSERT_TRUE(changed_.wait_until(lock, Soon().when(), [&] { return !faults_.empty(); }));
  EXPECT_EQ(faults_, std::vector<std::string>{"slow 0.3"});
}

TEST_F(SupervisorTest, LongAndBrokenTextIsStillSent) {
  supervisor_->Error(1, Internal(std::string(1 << 20, 'x') + "\xff"), 1);
  EXPECT_LT(Heard().at("message").get<std::string>().size(), 10'000u);
  supervisor_->Note(1, "info", "bad \xff byte");
  EXPECT_EQ(Heard().at("severity"), "info");
}

TEST_F(SupervisorTest, AStopWithoutAssignmentsIsOfTheOneGenerationThereIs) {
  EXPECT_FALSE(supervisor_->stop_requested(7));
  ASSERT_TRUE(guardian_.Send("not JSON").ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"later version"})").ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"stop","reason":"cancelled"})").ok());
  const Deadline deadline = Soon();
  while (!supervisor_->stop_requested(7) && !deadline.Expired()) std::this_thread::yield();
  EXPECT_TRUE(supervisor_->stop_requested(7));
  EXPECT_EQ(supervisor_->stop_reason(), "cancelled");
}

TEST_F(SupervisorTest, AStopIsOfTheNewestAssignment) {
  auto pair = PacketSocket::Pair();
  ASSERT_TRUE(pair->first.Send(R"({"type":"assign","generation":3})").ok());
  ASSERT_TRUE(pair->first.Send(R"({"type":"stop","reason":"drain"})").ok());
  ASSERT_TRUE(pair->first.Send(R"({"type":"assign","generation":4})").ok());
  Supervisor supervisor(pair->second.Release(), {.on_lost = [] {}});
  EXPECT_TRUE(supervisor.stop_requested(3));
  EXPECT_FALSE(supervisor.stop_requested(4));
  EXPECT_EQ(supervisor.NextAssignment()->generation, 3);
  EXPECT_EQ(supervisor.NextAssignment()->generation, 4);
}

TEST_F(SupervisorTest, WhoeverWaitsForAnAssignmentEndsByAStop) {
  std::thread guardian([this] { ASSERT_TRUE(guardian_.Send(R"({"type":"stop"})").ok()); });
  EXPECT_FALSE(supervisor_->NextAssignment());
  guardian.join();
}

TEST_F(SupervisorTest, LostGuardianIsNoticed) {
  guardian_.Close();
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_until(lock, Soon().when(), [&] { return lost_; }));
}

TEST_F(SupervisorTest, LastWordsSurviveTheSupervisor) {
  supervisor_->Finished(1, 3, "m");
  supervisor_.reset();
  EXPECT_FALSE(lost_);
  EXPECT_EQ(Heard().at("type"), "finished");
  EXPECT_EQ(guardian_.Receive(Soon()).status().code(), StatusCode::kUnavailable);
}

TEST(Supervisor, WithoutAGuardianNothingHappens) {
  Supervisor supervisor{UniqueFd()};
  EXPECT_FALSE(supervisor.attached());
  supervisor.Formed(1);
  supervisor.Error(1, {FailureKind::kIo, Internal("no reader")}, 1);
  EXPECT_FALSE(supervisor.stop_requested(1));
  EXPECT_TRUE(supervisor.CalledOff(1).ok());
}

TEST(SupervisorDeathTest, RankEndsWithItsGuardian) {
  EXPECT_EXIT(
      {
        auto pair = PacketSocket::Pair();
        Supervisor supervisor(pair->second.Release());
        pair->first.Close();
        std::mutex mutex;
        std::condition_variable never;
        std::unique_lock lock(mutex);
        never.wait_until(lock, Soon().when(), [] { return false; });
      },
      ::testing::ExitedWithCode(1), "guardian of this rank is gone");
}

}  // namespace
}  // namespace muster
