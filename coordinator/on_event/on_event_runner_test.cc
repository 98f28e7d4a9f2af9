#include "coordinator/on_event/on_event_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "common/base/json.h"
#include "common/http/testing/http_sink.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

class OnEventRunnerTest : public testing::Test {
 protected:
  OnEventRunnerTest() {
    spec_.name = "chat";
    spec_.on_event.kinds = {"recovered", "failed"};
  }
  ~OnEventRunnerTest() override { Stop(); }

  void StartFor(const HttpSinkForTest& sink) {
    spec_.on_event.webhook = sink.Url("/hook");
    Start({.rules = *WebhookRules::Parse("127.0.0.1:" + std::to_string(sink.port())),
           .first_retry = 5ms});
  }
  void Start(OnEventOptions options) {
    runner_ = std::make_unique<OnEventRunner>(loop_, std::move(options));
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

  JobSpec spec_;
  EventLoop loop_;
  std::unique_ptr<OnEventRunner> runner_;
  std::thread thread_;
};

TEST(OnEventJsonTest, HoldsTheEventAndNoBytesThatAreNotText) {
  JobSpec spec;
  spec.name = "chat";
  const auto json = nlohmann::json::parse(OnEventJson(spec, {.seq = 7,
                                                             .unix_ms = 1700000000000,
                                                             .job = {"00c0ffee00"},
                                                             .generation = 2,
                                                             .kind = "recovered",
                                                             .message = "rank 1 is \xff back"}));
  EXPECT_EQ(json["seq"], 7);
  EXPECT_EQ(json["unix_ms"], 1700000000000);
  EXPECT_EQ(json["job"], "00c0ffee00");
  EXPECT_EQ(json["name"], "chat");
  EXPECT_EQ(json["generation"], 2);
  EXPECT_EQ(json["kind"], "recovered");
  EXPECT_EQ(json["severity"], "info");
  EXPECT_EQ(json["message"], "rank 1 is \xEF\xBF\xBD back");
}

TEST_F(OnEventRunnerTest, AJobWhoseWebhookIsNotAllowedIsRefused) {
  Start({.rules = *WebhookRules::Parse("hooks.example")});
  EXPECT_TRUE(runner_->Check(JobSpec()).ok());
  spec_.on_event.webhook = "https://hooks.example/x";
  EXPECT_TRUE(runner_->Check(spec_).ok());
  spec_.on_event.webhook = "https://elsewhere.example/x";
  EXPECT_THAT(runner_->Check(spec_).message(), HasSubstr("on_event.webhook: "));
}

TEST_F(OnEventRunnerTest, AJobOfBeforeIsNotPostedWhereThatIsNotAllowedAnyMore) {
  const HttpSinkForTest sink({200});
  spec_.on_event.webhook = sink.Url("/hook");
  Start({.rules = *WebhookRules::Parse("hooks.example")});
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_TRUE(sink.requests().empty());
}

TEST_F(OnEventRunnerTest, ANameThatLeadsToTheCoordinatorItselfIsNotConnected) {
  const HttpSinkForTest sink({200});
  const std::string host = "localhost:" + std::to_string(sink.port());
  spec_.on_event.webhook = "http://" + host + "/hook";
  Start({.rules = *WebhookRules::Parse(host)});
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_TRUE(sink.requests().empty());
}

TEST_F(OnEventRunnerTest, ButIsWhereTheOperatorListsItsNetwork) {
  const HttpSinkForTest sink({200});
  const std::string host = "localhost:" + std::to_string(sink.port());
  spec_.on_event.webhook = "http://" + host + "/hook";
  Start({.rules = *WebhookRules::Parse(host + ",127.0.0.0/8,::1/128")});
  Offer("recovered");
  EXPECT_TRUE(Eventually([&] { return runner_->totals().done == 1; }));
}

TEST_F(OnEventRunnerTest, ARedirectIsNotFollowed) {
  const HttpSinkForTest sink({302});
  StartFor(sink);
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_EQ(sink.requests().size(), 1u);
}

TEST_F(OnEventRunnerTest, AnEventThatTheJobDoesNotNameIsNotPosted) {
  const HttpSinkForTest sink({200});
  StartFor(sink);
  Offer("placed");
  Offer("failed");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().done == 1; }));
  ASSERT_EQ(sink.requests().size(), 1u);
  EXPECT_THAT(sink.requests()[0], HasSubstr("\"kind\":\"failed\""));
}

TEST_F(OnEventRunnerTest, PostsTheWebhook) {
  const HttpSinkForTest sink({200});
  StartFor(sink);
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().done == 1; }));
  ASSERT_EQ(sink.requests().size(), 1u);
  EXPECT_THAT(sink.requests()[0], HasSubstr("POST /hook HTTP/1.1"));
  EXPECT_THAT(sink.requests()[0], HasSubstr("\"kind\":\"recovered\""));
}

TEST_F(OnEventRunnerTest, AWebhookIsTriedThreeTimes) {
  const HttpSinkForTest sink({500, 503, 200});
  StartFor(sink);
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().done == 1; }));
  EXPECT_EQ(sink.requests().size(), 3u);
}

TEST_F(OnEventRunnerTest, AWebhookThatNeverWorksIsGivenUp) {
  const HttpSinkForTest sink({500});
  StartFor(sink);
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_EQ(sink.requests().size(), 3u);
}

TEST_F(OnEventRunnerTest, ARefusalIsNotTriedAgain) {
  const HttpSinkForTest sink({404});
  StartFor(sink);
  Offer("recovered");
  ASSERT_TRUE(Eventually([&] { return runner_->totals().failed == 1; }));
  EXPECT_EQ(sink.requests().size(), 1u);
}

TEST_F(OnEventRunnerTest, WebhooksThatWaitForAnAnswerDoNotHoldUpTheEnd) {
  const HttpSinkForTest sink({0});
  StartFor(sink);
  for (int i = 0; i < 300; ++i) Offer("recovered");
  EXPECT_TRUE(Eventually([&] { return sink.requests().size() == 4; }));
  EXPECT_TRUE(Eventually([&] { return runner_->totals().refused == 40; }));
  const Deadline deadline = Deadline::After(5s);
  Stop();
  EXPECT_FALSE(deadline.Expired());
}

}  // namespace
}  // namespace muster
