// A program as a `command:` job may be: it reads torchrun's environment, meets its peers the way
// its environment says, prints what it saw, and exits. Without Muster's libraries on purpose.
//
//   rendezvous_probe [EXIT_CODE]
//
// With TORCHELASTIC_USE_AGENT_STORE=True another process serves MASTER_PORT and every rank
// connects; otherwise rank 0 binds it and waits for all others.
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

addrinfo* Resolve(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  return getaddrinfo(host.c_str(), port.c_str(), &hints, &found) == 0 ? found : nullptr;
}

bool Connect(const addrinfo* address) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    const int fd = socket(address->ai_family, SOCK_STREAM, 0);
    if (connect(fd, address->ai_addr, address->ai_addrlen) == 0) return true;
    close(fd);
    poll(nullptr, 0, 20);
  }
  return false;
}

bool Accept(const addrinfo* address, int count) {
  const int fd = socket(address->ai_family, SOCK_STREAM, 0);
  if (bind(fd, address->ai_addr, address->ai_addrlen) != 0 || listen(fd, 16) != 0) {
    std::perror("bind MASTER_PORT");
    return false;
  }
  for (int i = 0; i < count; ++i) {
    pollfd waiting{fd, POLLIN, 0};
    if (poll(&waiting, 1, 20000) != 1 || accept(fd, nullptr, nullptr) < 0) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  for (const char* name : {"MASTER_ADDR",
                           "MASTER_PORT",
                           "RANK",
                           "LOCAL_RANK",
                           "WORLD_SIZE",
                           "LOCAL_WORLD_SIZE",
                           "GROUP_RANK",
                           "GROUP_WORLD_SIZE",
                           "ROLE_RANK",
                           "ROLE_WORLD_SIZE",
                           "NODE_RANK",
                           "TORCHELASTIC_RESTART_COUNT",
                           "TORCHELASTIC_MAX_RESTARTS",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_ERROR_FILE",
                           "TORCHELASTIC_USE_AGENT_STORE",
                           "OMP_NUM_THREADS",
                           "MUSTER_JOB_ID",
                           "MUSTER_GENERATION",
                           "MUSTER_CHECKPOINT_DIR",
                           "PROBE_GREETING"}) {
    std::printf("%s=%s\n", name, Variable(name).c_str());
  }
  std::fflush(stdout);
  const addrinfo* address = Resolve(Variable("MASTER_ADDR"), Variable("MASTER_PORT"));
  if (address == nullptr) return 3;
  const bool serve = Variable("TORCHELASTIC_USE_AGENT_STORE") != "True" && Variable("RANK") == "0";
  const bool met =
      serve ? Accept(address, std::atoi(Variable("WORLD_SIZE").c_str()) - 1) : Connect(address);
  std::printf("%s\n", met ? "met" : "did not meet");
  if (!met) return 4;
  return argc > 1 ? std::atoi(argv[1]) : 0;
}
