// EtcdServerForTest: a real etcd of one member on loopback, with its data in a temporary directory;
// it ends with its owner. Tests only.
//
// The test's thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/testing/temp_dir.h"
#include "common/base/unique_fd.h"
#include "common/process/spawn.h"
#include "coordinator/store/etcd_access.h"
#include "coordinator/store/etcd_client.h"
#include "tests/support/eventually.h"

namespace muster {

class EtcdServerForTest {
 public:
  EtcdServerForTest() {
    const char* path = std::getenv("PATH");
    auto program = FindProgram("etcd", path == nullptr ? "" : path, "");
    EXPECT_TRUE(program.ok()) << "etcd is not installed; deploy/install-deps --tests installs it";
    if (program.ok()) Start(*program);
  }
  ~EtcdServerForTest() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  EtcdServerForTest(const EtcdServerForTest&) = delete;
  EtcdServerForTest& operator=(const EtcdServerForTest&) = delete;

  // The one of this process; started by the first caller.
  static EtcdServerForTest& Shared() {
    static EtcdServerForTest server;
    return server;
  }
  // A store that no other test of this process has.
  static std::string NewPrefix() {
    static std::atomic<int> prefixes = 0;
    return "/test-" + std::to_string(++prefixes) + "/";
  }

  const std::string& address() const { return address_; }  // HOST:PORT
  EtcdAccess access() const { return {.members = {{address_, /*tls=*/false}}}; }
  std::unique_ptr<EtcdClient> Client() const {
    auto client = EtcdClient::Open(access(), std::chrono::seconds(10));
    EXPECT_TRUE(client.ok()) << client.status().ToString();
    return client.ok() ? *std::move(client) : nullptr;
  }

 private:
  void Start(const std::string& program) {
    const std::string any = "http://127.0.0.1:0";
    const std::string log = dir_ / "log";
    const UniqueFd output(::open(log.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const auto pid = SpawnChild(
        {.argv = {program, "--data-dir", dir_ / "data", "--log-outputs", "stderr", "--logger",
                  "zap", "--listen-client-urls", any, "--advertise-client-urls", any,
                  "--listen-peer-urls", any, "--initial-advertise-peer-urls", any,
                  "--initial-cluster", "default=" + any},
         .environment = {},
         .output_fd = output.get(),
         .die_with_parent = true});
    ASSERT_TRUE(pid.ok()) << pid.status().ToString();
    pid_ = *pid;
    ASSERT_TRUE(Eventually([&] { return FindAddress(log); }, std::chrono::seconds(30))) << log;
  }
  // What it logs when it serves.
  bool FindAddress(const std::string& log) {
    const auto text = ReadFile(log);
    if (!text.ok()) return false;
    const std::string mark = "\"address\":\"";
    const std::size_t serving = text->find("serving client traffic");
    if (serving == std::string::npos) return false;
    const std::size_t begin = text->find(mark, serving);
    const std::size_t end = text->find('"', begin + mark.size());
    if (begin == std::string::npos || end == std::string::npos) return false;
    address_ = text->substr(begin + mark.size(), end - begin - mark.size());
    return true;
  }

  const TempDirForTest dir_;
  pid_t pid_ = -1;
  std::string address_;
};

}  // namespace muster
