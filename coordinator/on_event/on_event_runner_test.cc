#include "coordinator/on_event/on_event_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "common/base/files.h"
#include "common/process/temp_dir_for_test.h"
#include "common/telemetry/http_sink_for_test.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class OnEventRunnerTest : public testing::Test {
 protected:
  OnEventRunnerTest() {
    spec_.name = "chat";
    spec_.workdir = dir_.path();
    spec_.on_event.kinds = {"recovered", "failed"};
  }
  ~OnEventRunnerTest() override { Stop(); }

  void Start(OnEventOptions options = {}) {
    runner_ = std::make_unique<OnEventRunner>(loop_, options);
    thread_ = std::thread([this] { loop_.Run(); });
  }
  // As a server ends: the loop first.
  void Stop() {
    if (!thread_.joinable()) return;
    loop_.Stop();
    thread_.join();
    runner_.reset();
  }
  void Offer(const std::string& kind, const std::string& message = "g2 is up") {
    const EventRecord event{.seq = 7,
                            .unix_ms = 1700000000000,
                            .job = {"00c0ffee00"},
                            .generation = 2,
                            .kind = kind,
                            .message = message};
    loop_.Post([this, event] { runner_->Offer(spec_, event); });
  }
  bool FileHolds(const std::string& name, const std::string& text) {
    return Eventually([&] {
      const auto content = ReadFile(dir_ / name);
      return content.ok() && *content == text;
    });
  }

  const TempDirForTest dir_;
  JobSpec spec_;
  EventLoop loop_;
  std::unique_ptr<OnEventRunner> runner_;
  std::thread thread_;
};

TEST_F(OnEventRunnerTest, RunsTheCommandWithTheEventOnItsInput) {
  spec_.on_event.command = {"sh", "-c",
                            "cat >event.new; echo $MUSTER_JOB_ID $MUSTER_EVENT_KIND >names; "
                            "mv event.new event"};
  Start();
  Offer("placed");
  Offer("recovered", "rank 1 is \xff back");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().commands == 1; }));
  EXPECT_TRUE(FileHolds("names", "00c0ffee00 recovered\n"));
  const auto text = ReadFile(dir_ / "event");
  ASSERT_TRUE(text.ok());
  const auto json = nlohmann::json::parse(*text);
  EXPECT_EQ(json["seq"], 7);
  EXPECT_EQ(json["unix_ms"], 1700000000000);
  EXPECT_EQ(json["job"], "00c0ffee00");
  EXPECT_EQ(json["name"], "chat");
  EXPECT_EQ(json["generation"], 2);
  EXPECT_EQ(json["kind"], "recovered");
  EXPECT_EQ(json["severity"], "info");
  EXPECT_EQ(json["message"], "rank 1 is \xEF\xBF\xBD back");
}

TEST_F(OnEventRunnerTest, NoShellReadsTheCommand) {
  spec_.on_event.command = {"touch", "a b; touch c"};
  Start();
  Offer("failed");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().commands == 1; }));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "a b; touch c"));
  EXPECT_FALSE(std::filesystem::exists(dir_ / "c"));
}

TEST_F(OnEventRunnerTest, ACommandThatFailsOrIsNotThereIsCounted) {
  spec_.on_event.command = {"sh", "-c", "exit 3"};
  Start();
  Offer("failed");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  loop_.Post([this] { spec_.on_event.command = {"no-such-program-anywhere"}; });
  Offer("failed");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 2; }));
  EXPECT_EQ(runner_->totals().commands, 0u);
}

TEST_F(OnEventRunnerTest, ACommandThatDoesNotEndIsEnded) {
  spec_.on_event.command = {"sleep", "1000"};
  Start({.command_limit = 100ms});
  Offer("failed");
  EXPECT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
}

TEST_F(OnEventRunnerTest, RunsEightAtOnceAndRefusesWhatIsTooMuch) {
  spec_.on_event.command = {"sh", "-c", "mktemp running.XXXXXX; sleep 1000"};
  Start();
  for (int i = 0; i < 8; ++i) Offer("failed");
  const auto running = [&] {
    return std::distance(std::filesystem::directory_iterator(dir_.path()), {});
  };
  ASSERT_TRUE(Eventually([&] { return running() == 8; }));
  for (int i = 0; i < 300; ++i) Offer("failed");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().refused == 44; }));
  EXPECT_EQ(running(), 8);
  // And none of them holds up the end.
  const Deadline deadline = Deadline::After(5s);
  Stop();
  EXPECT_FALSE(deadline.Expired());
}

TEST_F(OnEventRunnerTest, PostsTheWebhook) {
  const HttpSinkForTest sink({200});
  spec_.on_event.webhook = sink.Url("/hook");
  Start();
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().webhooks == 1; }));
  ASSERT_EQ(sink.requests().size(), 1u);
  EXPECT_THAT(sink.requests()[0], HasSubstr("POST /hook HTTP/1.1"));
  EXPECT_THAT(sink.requests()[0], HasSubstr("\"kind\":\"recovered\""));
}

TEST_F(OnEventRunnerTest, AWebhookIsTriedThreeTimes) {
  const HttpSinkForTest sink({500, 503, 200});
  spec_.on_event.webhook = sink.Url("/hook");
  Start({.first_retry = 5ms});
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().webhooks == 1; }));
  EXPECT_EQ(sink.requests().size(), 3u);
}

TEST_F(OnEventRunnerTest, AWebhookThatNeverWorksIsGivenUp) {
  const HttpSinkForTest sink({500});
  spec_.on_event.webhook = sink.Url("/hook");
  Start({.first_retry = 5ms});
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_EQ(sink.requests().size(), 3u);
}

TEST_F(OnEventRunnerTest, ARefusalIsNotTriedAgain) {
  const HttpSinkForTest sink({404});
  spec_.on_event.webhook = sink.Url("/hook");
  Start({.first_retry = 5ms});
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_EQ(sink.requests().size(), 1u);
}

TEST_F(OnEventRunnerTest, WebhooksThatWaitForAnAnswerDoNotHoldUpTheEnd) {
  const HttpSinkForTest sink({0});
  spec_.on_event.webhook = sink.Url("/hook");
  Start();
  for (int i = 0; i < 300; ++i) Offer("recovered");
  EXPECT_TRUE(Eventually([&] { return sink.requests().size() == 8; }));
  EXPECT_TRUE(Eventually([&] { return runner_->totals().refused == 36; }));
  Stop();
}

}  // namespace
}  // namespace muster
