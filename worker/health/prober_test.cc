#include "worker/health/prober.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"
#include "common/telemetry/http_server.h"
#include "worker/health/probe_port.h"

namespace muster::worker {
namespace {

using namespace std::chrono_literals;

struct Listener {
  explicit Listener(int backlog) : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd.get(), backlog), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  }
  int port() const { return ntohs(address.sin_port); }
  UniqueFd fd;
  sockaddr_in address{};
};

// A listening socket whose queue is full: the kernel drops what comes, as a cut cable would.
struct BlackHole : Listener {
  BlackHole() : Listener(0) {
    for (int i = 0; i < 4; ++i) {
      fillers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      (void)::connect(fillers.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    }
  }
  std::vector<UniqueFd> fillers;
};

class ProberTest : public testing::Test {
 protected:
  // Runs the loop, once, until `count` results are there or the time is over.
  std::vector<ProbeResult> Await(std::size_t count, Duration limit = 10s) {
    wanted_ = count;
    Timer timer(loop_);
    timer.Start(limit, [this] { loop_.Stop(); });
    loop_.Run();
    return results_;
  }
  Probe To(int port, int timeout_ms = 5000) const {
    return {.probe_id = 7,
            .node = {"n1"},
            .address = "127.0.0.1",
            .port = port,
            .timeout_ms = timeout_ms};
  }

  std::size_t wanted_ = 0;
  std::function<void()> after_first_;
  std::vector<ProbeResult> results_;
  EventLoop loop_;
  Prober prober_{loop_, [this](const ProbeResult& result) {
                   results_.push_back(result);
                   if (after_first_) std::exchange(after_first_, nullptr)();
                   if (results_.size() == wanted_) loop_.Stop();
                 }};
};

TEST_F(ProberTest, AWorkerWhoseHttpAnswersHasAnswered) {
  const auto http = HttpServer::Listen(loop_, "127.0.0.1", 0);
  ASSERT_TRUE(http.ok()) << http.status().ToString();
  const Deadline limit = Deadline::After(5s);
  prober_.Start(To((*http)->port()));
  const auto results = Await(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0],
            (ProbeResult{.probe_id = 7, .node = {"n1"}, .outcome = ProbeOutcome::kAnswered}));
  EXPECT_EQ(prober_.totals().answered, 1u);
  EXPECT_FALSE(limit.Expired()) << "it waits for the answer's end";
}

TEST_F(ProberTest, AFrozenHostWhoseKernelTakesTheConnectionHasNotAnswered) {
  const Listener listener(8);
  prober_.Start(To(listener.port(), 200));
  const auto results = Await(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, ProbeOutcome::kSilent);
  EXPECT_EQ(prober_.totals().silent, 1u);
  EXPECT_EQ(prober_.totals().answered, 0u);
}

TEST_F(ProberTest, AHostWithoutAWorkerRefuses) {
  int port = 0;
  {
    const Listener gone(8);
    port = gone.port();
  }
  prober_.Start(To(port));
  const auto results = Await(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, ProbeOutcome::kRefused);
}

// A node that was killed took a second longer to be lost when its probe met the dying worker.
TEST_F(ProberTest, AWorkerThatDiesWithTheProbeInItsQueueRefuses) {
  Listener listener(8);
  prober_.Start(To(listener.port()));
  Timer death(loop_);
  death.Start(50ms, [&] { listener.fd.reset(); });
  const auto results = Await(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, ProbeOutcome::kRefused);
}

TEST_F(ProberTest, SilenceIsUnreachableWhenTheTimeIsOver) {
  const BlackHole hole;
  const Deadline limit = Deadline::After(5s);
  prober_.Start(To(hole.port(), 200));
  const auto results = Await(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, ProbeOutcome::kUnreachable);
  EXPECT_FALSE(limit.Expired());
}

TEST_F(ProberTest, AnUnknownNameIsNoEvidence) {
  Probe probe = To(1);
  probe.address = "no such host";
  prober_.Start(probe);
  const auto port = ProbePort::Listen(loop_, "127.0.0.1", 0);
  ASSERT_TRUE(port.ok());
  prober_.Start(To((*port)->port()));
  const auto results = Await(1);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].outcome, ProbeOutcome::kAnswered);
}

TEST_F(ProberTest, MoreThanItsBoundAreLeftOut) {
  const BlackHole hole;
  for (int i = 0; i < 70; ++i) prober_.Start(To(hole.port(), 200));
  EXPECT_EQ(prober_.totals().unknown, 6u);
  // Those that end make room.
  after_first_ = [&] { prober_.Start(To(hole.port(), 200)); };
  EXPECT_EQ(Await(65).size(), 65u);
  EXPECT_EQ(prober_.totals().unknown, 6u);
}

TEST_F(ProberTest, ProbesEndWithTheirProber) {
  const BlackHole hole;
  int told = 0;
  {
    Prober prober(loop_, [&](const ProbeResult&) { ++told; });
    prober.Start(To(hole.port(), 20));
  }
  EXPECT_TRUE(Await(1, 100ms).empty());
  EXPECT_EQ(told, 0);
}

TEST_F(ProberTest, APortForProbesAnswersAtItsAddress) {
  const auto port = ProbePort::Listen(loop_, "127.0.0.3", 0);
  ASSERT_TRUE(port.ok()) << port.status().ToString();
  Probe probe = To((*port)->port());
  probe.address = "127.0.0.3";
  probe.probe_id = 1;
  for (int i = 0; i < 3; ++i) prober_.Start(probe);
  probe.address = "127.0.0.1";
  probe.probe_id = 2;
  prober_.Start(probe);
  const auto results = Await(4);
  ASSERT_EQ(results.size(), 4u);
  for (const ProbeResult& result : results) {
    const bool there = result.probe_id == 1;
    EXPECT_EQ(result.outcome, there ? ProbeOutcome::kAnswered : ProbeOutcome::kRefused);
  }
}

TEST_F(ProberTest, APortThatIsTakenIsDistinguished) {
  const auto port = ProbePort::Listen(loop_, "127.0.0.3", 0);
  ASSERT_TRUE(port.ok());
  EXPECT_EQ(ProbePort::Listen(loop_, "127.0.0.3", (*port)->port()).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(ProbePort::Listen(loop_, "192.0.2.1", 0).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(ProbePort::Listen(loop_, "no such host", 0).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace muster::worker
