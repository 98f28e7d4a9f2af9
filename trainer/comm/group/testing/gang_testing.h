// Gangs of forked processes over loopback, for tests: every rank is a real process that a test may
// kill. Header of tests only. Fork happens before any thread exists.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "trainer/comm/communicator.h"

namespace muster::testing {

// A bound and listening socket, as a guardian hands it to rank 0.
struct Listener {
  UniqueFd fd;
  int port = 0;
};

inline Listener Listen() {
  Listener listener;
  listener.fd.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  MUSTER_CHECK(bind(listener.fd.get(), generic, length) == 0, "bind");
  MUSTER_CHECK(listen(listener.fd.get(), 4096) == 0, "listen");
  MUSTER_CHECK(getsockname(listener.fd.get(), generic, &length) == 0, "getsockname");
  listener.port = ntohs(address.sin_port);
  return listener;
}

inline Rendezvous MeetAt(Listener& listener, int rank, int size, Generation generation = 1) {
  Rendezvous rendezvous;
  rendezvous.generation = generation;
  rendezvous.rank = rank;
  rendezvous.world_size = size;
  rendezvous.master_address = "127.0.0.1";
  rendezvous.master_port = listener.port;
  rendezvous.token = "token of generation " + std::to_string(generation);
  if (rank == 0) rendezvous.listen_fd = std::move(listener.fd);
  return rendezvous;
}

// One forked process; what its body returns comes back through a pipe. Killed and reaped when the
// object goes.
class Child {
 public:
  explicit Child(const std::function<std::string()>& body) {
    int ends[2];
    MUSTER_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    pid_ = fork();
    MUSTER_CHECK(pid_ >= 0, "fork");
    if (pid_ == 0) {
      close(ends[0]);
      const std::string said = body();
      // Only a few bytes beyond PIPE_BUF: the parent reads while we write.
      std::size_t at = 0;
      while (at < said.size()) {
        const ssize_t n = write(ends[1], said.data() + at, said.size() - at);
        if (n <= 0) break;
        at += static_cast<std::size_t>(n);
      }
      _exit(0);
    }
    close(ends[1]);
    pipe_.reset(ends[0]);
  }
  Child(Child&& other) noexcept
      : pid_(std::exchange(other.pid_, -1)), pipe_(std::move(other.pipe_)) {}
  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  // Waits until the child has ended.
  std::string Said() {
    std::string said;
    char buffer[65536];
    for (ssize_t n; (n = read(pipe_.get(), buffer, sizeof(buffer))) > 0;) {
      said.append(buffer, static_cast<std::size_t>(n));
    }
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
    return said;
  }

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd pipe_;
};

// Words between ranks past the communicator: not even a barrier shows a rank that the others have
// left it.
class SideChannel {
 public:
  SideChannel() { MUSTER_CHECK(pipe2(ends_, O_CLOEXEC) == 0, "pipe"); }
  ~SideChannel() {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Tell() { MUSTER_CHECK(write(ends_[1], "x", 1) == 1, "write"); }
  void Await(int words = 1) {
    char word;
    for (int i = 0; i < words; ++i) {
      pollfd ready{ends_[0], POLLIN, 0};
      MUSTER_CHECK(poll(&ready, 1, 60'000) == 1, "no word has come");
      MUSTER_CHECK(read(ends_[0], &word, 1) == 1, "read");
    }
  }

 private:
  int ends_[2];
};

}  // namespace muster::testing
