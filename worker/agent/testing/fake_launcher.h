// FakeLauncher: a launcher for tests that starts file servers as this process's user, each a child
// of it: real ones, or what an account can put in their place. Owned by a test; destroyed before
// it, which ends them.
#pragma once

#include <gtest/gtest.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/testing/temp_dir.h"
#include "worker/agent/owner_server.h"
#include "worker/launcher/messages.h"
#include "worker/process/unix_socket.h"

namespace muster::worker {

class FakeLauncher {
 public:
  // `serve` has the socket that a file server has, in a process of its own, which ends after it.
  using Serve = std::function<void(int fd)>;

  explicit FakeLauncher(Serve serve = [](int fd) { ServeOwnerFiles(fd); })
      : serve_(std::move(serve)), stop_(::eventfd(0, EFD_CLOEXEC)) {
    auto listening = ListenPackets(dir_.path(), "launcher.sock");
    EXPECT_TRUE(listening.ok()) << listening.status().ToString();
    listening_ = std::move(*listening);
    thread_ = std::thread([this] { Run(); });
  }
  ~FakeLauncher() {
    ::eventfd_write(stop_.get(), 1);
    thread_.join();
    KillServers();
  }
  FakeLauncher(const FakeLauncher&) = delete;

  std::string socket() const { return dir_ / "launcher.sock"; }
  int started() const { return started_; }
  // As when the account has killed them.
  void KillServers() {
    for (const pid_t pid : servers_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    servers_.clear();
  }

 private:
  void Run() {
    for (;;) {
      pollfd entries[] = {{listening_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
      ::poll(entries, 2, -1);
      if (entries[1].revents != 0) return;
      auto connection = AcceptPackets(listening_.get());
      if (!connection.ok()) continue;
      auto packet = connection->Receive(Deadline::After(std::chrono::seconds(5)));
      const auto request =
          packet.ok() ? launcher::Decode(packet->data, packet->fds.size()) : std::nullopt;
      launcher::Reply reply;
      if (!request || std::string(request->account) == "stranger") {
        reply.code = static_cast<std::uint8_t>(StatusCode::kNotFound);
        launcher::Put("this node has no account 'stranger'", reply.text);
      } else if (request->verb == launcher::Verb::kFiles) {
        StartServer(packet->fds[0].get());
      }
      (void)connection->Send({reinterpret_cast<const char*>(&reply), sizeof reply});
    }
  }
  void StartServer(int fd) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::dup2(fd, 3);
      ::syscall(SYS_close_range, 4U, ~0U, 0);
      serve_(3);
      std::_Exit(0);
    }
    servers_.push_back(pid);
    ++started_;
  }

  const TempDirForTest dir_;
  const Serve serve_;
  const UniqueFd stop_;
  UniqueFd listening_;
  std::vector<pid_t> servers_;
  std::atomic<int> started_ = 0;
  std::thread thread_;
};

}  // namespace muster::worker
