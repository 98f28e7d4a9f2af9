#include "trainer/checkpoint/supervisor.h"

#include <gtest/gtest.h>

#include <condition_variable>

#include <nlohmann/json.hpp>

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
    supervisor_ = std::make_unique<Supervisor>(pair->second.Release(), [this] {
      std::lock_guard lock(mutex_);
      lost_ = true;
      changed_.notify_all();
    });
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
};

TEST_F(SupervisorTest, ReportsAreTheProtocolsMessages) {
  supervisor_->Formed();
  EXPECT_EQ(Heard(), json::parse(R"({"type":"formed"})"));
  supervisor_->Resumed(40, {{"step-00000050-g1", "rank 1: damaged"}});
  EXPECT_EQ(Heard(), json::parse(R"({"type":"resumed","step":40,"rejected":[
      {"directory":"step-00000050-g1","reason":"rank 1: damaged"}]})"));
  supervisor_->FirstStep(41);
  EXPECT_EQ(Heard(), json::parse(R"({"type":"first_step","step":41})"));
  supervisor_->ShardWritten(50, "step-00000050-g2",
                            {1, "rank-00001.shard", 123, "xxh3:0123456789abcdef"});
  EXPECT_EQ(Heard(), json::parse(R"({"type":"shard_written","step":50,
      "directory":"step-00000050-g2","shard":{"rank":1,"file":"rank-00001.shard","bytes":123,
      "checksum":"xxh3:0123456789abcdef"}})"));
  supervisor_->CheckpointFailed(50, "disk full");
  EXPECT_EQ(Heard(), json::parse(R"({"type":"checkpoint_failed","step":50,"reason":"disk full"})"));
  supervisor_->Error("data", "row 3", 12);
  EXPECT_EQ(Heard(), json::parse(R"({"type":"error","kind":"data","message":"row 3","step":12})"));
  supervisor_->Note("warning", "3 rows were truncated");
  EXPECT_EQ(
      Heard(),
      json::parse(R"({"type":"note","severity":"warning","message":"3 rows were truncated"})"));
  supervisor_->Finished(200, "/out/model");
  EXPECT_EQ(Heard(), json::parse(R"({"type":"finished","step":200,"model_dir":"/out/model"})"));
}

TEST_F(SupervisorTest, LongAndBrokenTextIsStillSent) {
  supervisor_->Error("internal", std::string(1 << 20, 'x') + "\xff", 1);
  EXPECT_LT(Heard().at("message").get<std::string>().size(), 10'000u);
  supervisor_->Note("info", "bad \xff byte");
  EXPECT_EQ(Heard().at("severity"), "info");
}

TEST_F(SupervisorTest, StopIsHeard) {
  EXPECT_FALSE(supervisor_->stop_requested());
  ASSERT_TRUE(guardian_.Send("not JSON").ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"later version"})").ok());
  ASSERT_TRUE(guardian_.Send(R"({"type":"stop","reason":"cancelled"})").ok());
  const Deadline deadline = Soon();
  while (!supervisor_->stop_requested() && !deadline.Expired()) std::this_thread::yield();
  EXPECT_TRUE(supervisor_->stop_requested());
  EXPECT_EQ(supervisor_->stop_reason(), "cancelled");
}

TEST_F(SupervisorTest, LostGuardianIsNoticed) {
  guardian_.Close();
  std::unique_lock lock(mutex_);
  EXPECT_TRUE(changed_.wait_until(lock, Soon().when(), [&] { return lost_; }));
}

TEST_F(SupervisorTest, LastWordsSurviveTheSupervisor) {
  supervisor_->Finished(3, "m");
  supervisor_.reset();
  EXPECT_FALSE(lost_);
  EXPECT_EQ(Heard().at("type"), "finished");
  EXPECT_EQ(guardian_.Receive(Soon()).status().code(), StatusCode::kUnavailable);
}

TEST(Supervisor, WithoutAGuardianNothingHappens) {
  Supervisor supervisor{UniqueFd()};
  EXPECT_FALSE(supervisor.attached());
  supervisor.Formed();
  supervisor.Error("io", "nobody hears", 1);
  EXPECT_FALSE(supervisor.stop_requested());
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
