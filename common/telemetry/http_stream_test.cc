// Answers that come later, and streams of events.
#include "common/telemetry/http_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "common/telemetry/testing/http_server_testing.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class HttpStreamTest : public HttpServerTest {
 protected:
  explicit HttpStreamTest(Duration heartbeat = std::chrono::hours(1)) : HttpServerTest(heartbeat) {
    server_->HandleLater("/late/", [this](const HttpRequest& request, HttpResponder reply) {
      request_ = request;
      reply_ = std::move(reply);
      ++asked_;
    });
    server_->HandleStream("/events",
                          [this](const HttpRequest& request, std::shared_ptr<HttpStream> stream,
                                 const HttpResponder& reply) {
                            if (request.query == "no") return reply({404, "text/plain", "no"});
                            stream->Listen([this] { ++ready_; }, [this] { ++gone_; });
                            streams_.push_back(std::move(stream));
                            if (request.query != "late") return reply({});
                            reply_ = reply;
                            ++asked_;
                          });
  }
  ~HttpStreamTest() override {
    OnLoop([this] {
      for (const auto& stream : streams_) stream->Close();
      streams_.clear();
      reply_ = nullptr;
    });
    StopLoop();
  }

  Reader OpenStream() {
    const std::size_t before = opened_++;
    Reader reader{Connect(), {}};
    Send(reader.fd, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(reader.Until("\r\n\r\n"), HasSubstr("Content-Type: text/event-stream\r\n"));
    EXPECT_TRUE(Eventually([&] { return ready_ > static_cast<int>(before); }));
    return reader;
  }
  bool SendEvent(std::size_t stream, const std::string& data) {
    bool sent = false;
    OnLoop([&] { sent = streams_[stream]->Send("state", data); });
    return sent;
  }

  std::vector<std::shared_ptr<HttpStream>> streams_;
  std::size_t opened_ = 0;
  HttpRequest request_;
  HttpResponder reply_;
  std::atomic<int> asked_ = 0;
  std::atomic<int> ready_ = 0;
  std::atomic<int> gone_ = 0;
};

TEST_F(HttpStreamTest, AnAnswerMayComeLater) {
  const UniqueFd fd = Connect();
  Send(fd, Request("GET /late/a/b?c=d", "Authorization: Bearer secret\r\n"));
  ASSERT_TRUE(Eventually([&] { return asked_ == 1; }));
  EXPECT_EQ(request_.path, "/late/a/b");
  EXPECT_EQ(request_.query, "c=d");
  EXPECT_EQ(request_.bearer, "secret");
  EXPECT_FALSE(request_.peer);
  EXPECT_THAT(Ask(Request("GET /metrics?meanwhile")), HasSubstr("hello meanwhile"));
  OnLoop([this] {
    reply_({.body = "at last"});
    reply_({.body = "again"});
  });
  EXPECT_TRUE(ReadUntil(fd, "").ends_with("\r\n\r\nat last"));
}

TEST_F(HttpStreamTest, AnAnswerThatIsDroppedClosesTheConnection) {
  const UniqueFd fd = Connect();
  Send(fd, Request("GET /late/a"));
  ASSERT_TRUE(Eventually([&] { return asked_ == 1; }));
  OnLoop([this] { reply_ = nullptr; });
  EXPECT_EQ(ReadUntil(fd, ""), "");
}

TEST_F(HttpStreamTest, EventsArriveInOrder) {
  Reader reader = OpenStream();
  EXPECT_TRUE(SendEvent(0, "{\"a\":1}"));
  EXPECT_EQ(reader.Until("\n\n"), "event: state\ndata: {\"a\":1}\n\n");
  ASSERT_TRUE(Eventually([&] { return SendEvent(0, "2"); }));
  EXPECT_EQ(reader.Until("\n\n"), "event: state\ndata: 2\n\n");
}

TEST_F(HttpStreamTest, ARefusalIsAnOrdinaryAnswer) {
  EXPECT_THAT(Ask(Request("GET /events?no")), StartsWith("HTTP/1.1 404 "));
  EXPECT_EQ(streams_.size(), 0u);
  EXPECT_THAT(Ask(Request("HEAD /events")), HasSubstr("text/event-stream"));
}

TEST_F(HttpStreamTest, AStreamThatIsAnsweredLaterBeginsThenOrIsRefused) {
  for (const int status : {200, 404}) {
    Reader reader{Connect(), {}};
    Send(reader.fd, "GET /events?late HTTP/1.1\r\nHost: localhost\r\n\r\n");
    const int asked = status == 200 ? 1 : 2;
    ASSERT_TRUE(Eventually([&] { return asked_ == asked; }));
    EXPECT_FALSE(SendEvent(streams_.size() - 1, "early"));
    OnLoop([&] { std::exchange(reply_, nullptr)({.status = status, .body = "no"}); });
    EXPECT_THAT(reader.Until("\r\n\r\n"), StartsWith("HTTP/1.1 " + std::to_string(status)));
    if (status == 200) {
      ASSERT_TRUE(Eventually([&] { return SendEvent(0, "now"); }));
      EXPECT_EQ(reader.Until("\n\n"), "event: state\ndata: now\n\n");
    }
  }
}

TEST_F(HttpStreamTest, ASlowReaderHoldsOneMessageAndDelaysNoOther) {
  Reader slow = OpenStream();
  Reader quick = OpenStream();
  const std::string large(32 << 20, 'x');  // more than the sockets' buffers take
  EXPECT_TRUE(SendEvent(0, large));
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(SendEvent(0, "newer"));
  EXPECT_TRUE(SendEvent(1, "quick"));
  EXPECT_EQ(quick.Until("\n\n"), "event: state\ndata: quick\n\n");
  EXPECT_EQ(slow.Until("\n\n").size(),
            large.size() + std::string("event: state\ndata: \n\n").size());
  EXPECT_TRUE(Eventually([&] { return SendEvent(0, "newest"); }));
  EXPECT_EQ(slow.Until("\n\n"), "event: state\ndata: newest\n\n");
}

TEST_F(HttpStreamTest, AReaderThatGoesIsNoticedWithoutAnythingToSend) {
  { Reader reader = OpenStream(); }
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
  EXPECT_FALSE(SendEvent(0, "x"));
}

struct SilentStreamTest : HttpStreamTest {
  SilentStreamTest() : HttpStreamTest(std::chrono::milliseconds(50)) {}
};

TEST_F(SilentStreamTest, ALineThatIsSilentCarriesHeartbeats) {
  Reader reader = OpenStream();
  EXPECT_THAT(reader.Until("\n\n"), StartsWith(":\n\n"));
}

TEST_F(HttpStreamTest, TheOwnerEndsAStreamWithoutHearingOfIt) {
  Reader reader = OpenStream();
  OnLoop([this] { streams_[0]->Close(); });
  EXPECT_EQ(reader.Until("x"), "");
  EXPECT_EQ(gone_, 0);
}

TEST_F(HttpStreamTest, StreamsAreBoundedAndLeaveRoomForOthers) {
  std::vector<Reader> open;
  for (int i = 0; i < kMaxHttpStreams; ++i) open.push_back(OpenStream());
  EXPECT_THAT(Ask(Request("GET /events")), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask(Request("GET /metrics?still")), HasSubstr("hello still"));
  open.pop_back();
  EXPECT_TRUE(Eventually([&] { return gone_ == 1; }));
  OpenStream();
}

}  // namespace
}  // namespace muster
