#include "trainer/comm/rendezvous/store_server.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <map>

#include "trainer/comm/group/host_communicator.h"
#include "trainer/comm/group/testing/gang_testing.h"
#include "trainer/comm/rendezvous/net_probe.h"
#include "trainer/comm/rendezvous/store_client.h"

namespace muster {
namespace {

using testing::Child;
using testing::Listen;
using testing::Listener;

Deadline Soon() { return Deadline::After(std::chrono::seconds(10)); }

int RunWith(const std::map<std::string, std::string>& variables) {
  return RunStore([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Ranks that are all clients, as under TORCHELASTIC_USE_AGENT_STORE, meet at the store.
TEST(StoreServer, ServesUntilItIsToldToEnd) {
  Listener listener = Listen();
  Child store([&]() -> std::string {
    return std::to_string(RunWith({{"MUSTER_LISTEN_FD", std::to_string(listener.fd.release())}}));
  });
  std::vector<Child> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      Rendezvous rendezvous;
      rendezvous.rank = r;
      rendezvous.world_size = 2;
      rendezvous.master_address = "127.0.0.1";
      rendezvous.master_port = listener.port;
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(std::move(rendezvous), Soon()); !s.ok()) return s.ToString();
      return c->Barrier().ToString();
    });
  }
  for (Child& rank : ranks) EXPECT_EQ(rank.Said(), "OK");
  kill(store.pid(), SIGTERM);
  EXPECT_EQ(store.Said(), "0");
}

TEST(StoreServer, EndsWithItsParent) {
  Listener listener = Listen();
  // The middle process is the store's parent. The pipe's end is inherited, so reading it to the
  // end waits for the store.
  Child parent([&]() -> std::string {
    if (fork() == 0) {
      (void)RunWith({{"MUSTER_LISTEN_FD", std::to_string(listener.fd.get())}});
      _exit(0);
    }
    // Answers only once the store serves.
    const Interrupt never;
    auto socket = ConnectWhenUp("127.0.0.1", listener.port, never, Soon());
    if (!socket.ok()) return socket.status().ToString();
    return StoreClient::Open(*std::move(socket), "store", never, Soon()).status().ToString();
  });
  EXPECT_EQ(parent.Said(), "OK");
}

// "localhost" would have been looked up; a machine without a name server would wait for the answer.
TEST(TcpStoreServer, NamesOfPeersAreNeverLookedUp) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // What LibTorch's calls are bound to.
  const auto look_up =
      reinterpret_cast<decltype(&::getnameinfo)>(::dlsym(RTLD_DEFAULT, "getnameinfo"));
  ASSERT_NE(look_up, nullptr);
  char host[NI_MAXHOST] = {};
  ASSERT_EQ(look_up(reinterpret_cast<sockaddr*>(&address), sizeof address, host, sizeof host,
                    nullptr, 0, 0),
            0);
  EXPECT_STREQ(host, "127.0.0.1");
}

TEST(StoreServer, NeedsABoundSocket) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(RunWith({}), 2);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("MUSTER_LISTEN_FD is not set"),
            std::string::npos);
}

}  // namespace
}  // namespace muster
