#include "worker/allocation/leader_duties.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "common/base/unique_fd.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;

// A process that is stopped: the kernel takes connections for it, and nothing ever answers.
class SilentServer {
 public:
  SilentServer() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(::bind(socket_.get(), any, size), 0);
    EXPECT_EQ(::listen(socket_.get(), 8), 0);
    EXPECT_EQ(::getsockname(socket_.get(), any, &size), 0);
    endpoint_.grpc = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  const UniqueFd socket_;
  Endpoint endpoint_;
};

class JobLeadTest : public testing::Test {
 protected:
  // Ticks on the loop until `done`, at most so long.
  template <typename Condition>
  void RunUntil(LeaderDuties& lead, Condition done, Duration limit) {
    Timer timer(loop_);
    const Deadline deadline = Deadline::After(limit);
    const std::function<void()> tick = [&] {
      lead.Tick({}, SystemClock().Now());
      if (done() || deadline.Expired()) return loop_.Stop();
      timer.Start(milliseconds(10), tick);
    };
    loop_.Post(tick);
    loop_.Run();
  }

  EventLoop loop_;
};

TEST(SeenNodesTest, ANodeWithoutAWorkerIsNotWaitedFor) {
  const std::vector<std::string> names = {"cpu1", "cpu2", "gpu1", "gpu2", "gpu3"};
  const NodesSeen seen =
      SeenNodes(names, {"gpu1"}, {.missing = {"gpu3"}, .without_worker = {"cpu1", "cpu2"}});
  EXPECT_EQ(seen.missing, std::vector<std::string>{"gpu3"});
  EXPECT_EQ(seen.unready, std::vector<std::string>{"gpu2"}) << "neither of the CPU nodes";
  EXPECT_TRUE(seen.some_ready);
  EXPECT_FALSE(SeenNodes(names, {}, {}).some_ready);
}

TEST_F(JobLeadTest, ACoordinatorThatHangsIsReportedOnce) {
  const SilentServer server;
  int hung = 0;
  LeaderDuties lead(loop_, {.job_yaml = "name: x", .key = "k", .timeout = milliseconds(300)},
                    {.on_ending = [](const Ending& ending) { ADD_FAILURE() << ending.reason; },
                     .on_hung = [&] { ++hung; }});
  const TimePoint begun = SystemClock().Now();
  lead.OnCoordinatorUp(server.endpoint(), "token", true, begun);
  RunUntil(
      lead, [&] { return SystemClock().Now() - begun > milliseconds(600); },
      std::chrono::seconds(5));
  EXPECT_EQ(hung, 1);
}

TEST_F(JobLeadTest, NoCoordinatorDoesNotHang) {
  int hung = 0;
  LeaderDuties lead(loop_, {.job_yaml = "name: x", .key = "k", .timeout = milliseconds(100)},
                    {.on_ending = [](const Ending&) {}, .on_hung = [&] { ++hung; }});
  const TimePoint begun = SystemClock().Now();
  RunUntil(
      lead, [&] { return SystemClock().Now() - begun > milliseconds(300); },
      std::chrono::seconds(5));
  EXPECT_EQ(hung, 0);
}

// What a deposed leader decided must not stand; that its node must end by then still does.
TEST_F(JobLeadTest, ADeposedOneForgetsWhatItDecidedButNotTheEndOfItsTime) {
  LeaderDuties lead(loop_, {.job_yaml = "name: x", .key = "k"}, {});
  const TimePoint now = SystemClock().Now();
  lead.monitor().OnStopNotice(now + std::chrono::seconds(60), "SIGTERM");
  lead.monitor().OnRefused(InvalidArgument("bad"));
  EXPECT_TRUE(lead.monitor().ended());
  lead.Forget();
  EXPECT_FALSE(lead.monitor().ended());
  EXPECT_EQ(lead.monitor().stop_by(), now + std::chrono::seconds(60));
}

}  // namespace
}  // namespace muster::worker
