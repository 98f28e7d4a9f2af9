#include "coordinator/service/connection_door.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "common/rpc/endpoint.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

constexpr std::size_t kBudget = 1000;

// In gRPC's place: keeps the connections, and reads nothing.
class Keeper final : public ConnectionDoor::Acceptor {
 public:
  explicit Keeper(std::atomic<int>& count) : count_(count) {}
  void HandleNewConnection(NewConnectionParameters* p) override {
    kept_.emplace_back(p->fd);
    ++count_;
  }

 private:
  std::atomic<int>& count_;
  std::vector<UniqueFd> kept_;
};

class ConnectionDoorTest : public ::testing::Test {
 protected:
  void Open(const std::string& host, ProbationLimits limits = {.bytes = kBudget}) {
    auto door = ConnectionDoor::Open(host + ":0", limits);
    ASSERT_TRUE(door.ok()) << door.status().ToString();
    door_ = *std::move(door);
    door_->Start(std::make_unique<Keeper>(accepted_));
  }

  // Once it was accepted.
  UniqueFd Connect(bool v6 = false) {
    UniqueFd fd(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in6 six{.sin6_family = AF_INET6,
                     .sin6_port = htons(static_cast<std::uint16_t>(door_->port())),
                     .sin6_addr = in6addr_loopback};
    sockaddr_in four{.sin_family = AF_INET, .sin_port = six.sin6_port};
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int before = accepted_;
    EXPECT_EQ(v6 ? ::connect(fd.get(), reinterpret_cast<sockaddr*>(&six), sizeof six)
                 : ::connect(fd.get(), reinterpret_cast<sockaddr*>(&four), sizeof four),
              0);
    EXPECT_TRUE(Eventually([&] { return accepted_ > before; }));
    return fd;
  }
  static std::string PortOf(const UniqueFd& fd) {
    sockaddr_in6 address{};
    socklen_t size = sizeof address;
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
    return std::to_string(ntohs(address.sin6_port));  // where sockaddr_in has it too
  }
  static void Send(const UniqueFd& fd, std::size_t bytes) {
    const std::string text(bytes, 'x');
    (void)::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Waits for it.
  static bool IsCutOff(const UniqueFd& fd) {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, 0) < 0 && errno == ECONNRESET;
  }
  static bool IsOpen(const UniqueFd& fd) {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  std::atomic<int> accepted_ = 0;
  std::unique_ptr<ConnectionDoor> door_;
};

TEST_F(ConnectionDoorTest, WhoSendsMoreThanItsBudgetIsCutOff) {
  Open("127.0.0.1");
  const UniqueFd modest = Connect();
  const UniqueFd greedy = Connect();
  Send(modest, kBudget);
  Send(greedy, kBudget + 1);
  EXPECT_TRUE(IsCutOff(greedy));
  EXPECT_TRUE(IsOpen(modest));
}

TEST_F(ConnectionDoorTest, WhoIsAdmittedHasNoBudget) {
  for (const bool v6 : {false, true}) {
    Open(v6 ? "[::1]" : "127.0.0.1");
    const UniqueFd admitted = Connect(v6);
    door_->Admit(v6 ? "ipv6:%5B::1%5D:" + PortOf(admitted) : "ipv4:127.0.0.1:" + PortOf(admitted));
    Send(admitted, 10 * kBudget);
    const UniqueFd other = Connect(v6);
    Send(other, 10 * kBudget);
    EXPECT_TRUE(IsCutOff(other)) << "the door looks";
    EXPECT_TRUE(IsOpen(admitted)) << v6;
  }
}

TEST_F(ConnectionDoorTest, AClientOfIPv4AtADoorForBothIsTheSame) {
  Open("[::]");
  const UniqueFd admitted = Connect();
  door_->Admit("ipv4:127.0.0.1:" + PortOf(admitted));
  Send(admitted, 10 * kBudget);
  const UniqueFd other = Connect();
  Send(other, 10 * kBudget);
  EXPECT_TRUE(IsCutOff(other));
  EXPECT_TRUE(IsOpen(admitted));
}

TEST_F(ConnectionDoorTest, SilenceGivesWayToTheNextInLine) {
  Open("127.0.0.1", {.connections = 2});
  const UniqueFd first = Connect();
  const UniqueFd second = Connect();
  const UniqueFd third = Connect();
  EXPECT_TRUE(IsCutOff(first));
  EXPECT_TRUE(IsOpen(third));
}

TEST_F(ConnectionDoorTest, ATakenPortIsSaid) {
  Open("127.0.0.1");
  const auto second = ConnectionDoor::Open("127.0.0.1:" + std::to_string(door_->port()), {});
  EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster
