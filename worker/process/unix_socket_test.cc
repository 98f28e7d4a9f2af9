#include "worker/process/unix_socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"

namespace muster {
namespace {

int ConnectTo(int port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 ? 0
                                                                                         : errno;
}

TEST(UnixSocket, WorksBelowADirectoryLongerThanASocketAddress) {
  const TempDirForTest dir;
  const std::string deep = dir / (std::string(100, 'a') + "/" + std::string(100, 'b'));
  ASSERT_TRUE(MakeDirectories(deep).ok());
  const auto listener = ListenPackets(deep, "guardian.sock");
  ASSERT_TRUE(listener.ok()) << listener.status().ToString();
  EXPECT_EQ(AcceptPackets(listener->get()).status().code(), StatusCode::kUnavailable);
  auto client = ConnectPackets(deep, "guardian.sock");
  ASSERT_TRUE(client.ok()) << client.status().ToString();
  auto server = AcceptPackets(listener->get());
  ASSERT_TRUE(server.ok()) << server.status().ToString();
  ASSERT_TRUE(client->Send("hello").ok());
  EXPECT_EQ(server->Receive(Deadline::After(std::chrono::seconds(5)))->data, "hello");
  struct stat info {};
  ASSERT_EQ(::stat((deep + "/guardian.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST(UnixSocket, AConnectionForWhichNoDescriptorIsLeftWaits) {
  const TempDirForTest dir;
  const auto listener = ListenPackets(dir.path(), "s");
  ASSERT_TRUE(listener.ok());
  const auto client = ConnectPackets(dir.path(), "s");
  ASSERT_TRUE(client.ok());
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{0, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = AcceptPackets(listener->get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(AcceptPackets(listener->get()).ok());
}

TEST(UnixSocket, AConnectionOfAnotherUserIsRefusedUnlessThatUserIsNamed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  constexpr uid_t kOther = 61234, kThird = 61235;
  const TempDirForTest dir;
  const auto listener = ListenPackets(dir.path(), "s");
  ASSERT_TRUE(listener.ok());
  ASSERT_EQ(::chmod(dir.path().c_str(), 0777), 0);
  ASSERT_EQ(::chmod((dir / "s").c_str(), 0666), 0);
  // In a child, so that this process stays what it is. Root would be let in whatever is named.
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_other = ::setresuid(kOther, kOther, kOther) == 0;
    const auto client = ConnectPackets(dir.path(), "s");
    ::_exit(is_other && client.ok() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0) << "root may listen";
  EXPECT_EQ(AcceptPackets(listener->get(), kThird).status().code(), StatusCode::kPermissionDenied);
  // Nor is one listening in another's place.
  const pid_t between = ::fork();
  if (between == 0) {
    if (::seteuid(kOther) != 0) ::_exit(1);
    const auto own = ListenPackets(dir.path(), "t");
    if (!own.ok() || ::chmod((dir / "t").c_str(), 0666) != 0 || ::seteuid(0) != 0 ||
        ::setresuid(kThird, kThird, kThird) != 0)
      ::_exit(2);
    const auto denied = ConnectPackets(dir.path(), "t").status().code();
    ::_exit(denied == StatusCode::kPermissionDenied && ConnectPackets(dir.path(), "t", kOther).ok()
                ? 0
                : 3);
  }
  ASSERT_EQ(::waitpid(between, &status, 0), between);
  EXPECT_EQ(status, 0);
}

TEST(UnixSocket, ListeningReplacesADeadOwnersFile) {
  const TempDirForTest dir;
  { ASSERT_TRUE(ListenPackets(dir.path(), "s").ok()); }
  EXPECT_EQ(ConnectPackets(dir.path(), "s").status().code(), StatusCode::kUnavailable);
  const auto again = ListenPackets(dir.path(), "s");
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(ConnectPackets(dir.path(), "s").ok());
}

TEST(BindTcp, AListeningPortTakesConnectionsAtOnce) {
  const auto bound = BindTcp({.address = "127.0.0.1"});
  ASSERT_TRUE(bound.ok());
  EXPECT_GT(bound->port, 0);
  EXPECT_EQ(ConnectTo(bound->port), 0);
}

TEST(BindTcp, AReservedPortRefusesConnections) {
  const auto bound = BindTcp({.address = "127.0.0.1", .listen = false});
  ASSERT_TRUE(bound.ok());
  EXPECT_EQ(ConnectTo(bound->port), ECONNREFUSED);
}

TEST(BindTcp, RefusesAnAddressThatIsNotThisNodes) {
  EXPECT_FALSE(BindTcp({.address = "localhost"}).ok());
  EXPECT_FALSE(BindTcp({.address = "192.0.2.1"}).ok());
}

}  // namespace
}  // namespace muster
