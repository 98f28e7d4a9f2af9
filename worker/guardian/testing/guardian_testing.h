// A guardian's binary with a test in the worker's place.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
#include "common/base/testing/temp_dir.h"
#include "common/process/spawn.h"
#include "tests/support/eventually.h"
#include "worker/guardian/protocol.h"
#include "worker/process/unix_socket.h"

namespace muster {

inline bool IsAlive(pid_t pid) {
  const auto info = ReadProcess(pid);
  return info.ok() && info->state != 'Z' && info->state != 'X';
}

class GuardianTest : public testing::Test {
 protected:
  void SetUp() override { guardian_pid_ = StartGuardian(dir_.path(), "0123456789"); }

  // Its pid; link_ leads to it.
  pid_t StartGuardian(const std::string& directory, const std::string& job) {
    auto pair = PacketSocket::Pair();
    EXPECT_TRUE(pair.ok());
    link_ = std::move(pair->first);
    const UniqueFd log(::open(GuardianLog().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600));
    SpawnOptions options{
        .argv = {MUSTER_GUARDIAN_BINARY, "--dir", directory, "--job", job, "--worker-fd", "3",
                 "--devices", dir_.path()},
        .environment = {"PATH=/usr/bin:/bin"},
        .output_fd = log.get(),
        .inherited = {{pair->second.fd(), 3}},
    };
    const Status status = SpawnDetached(options);
    EXPECT_TRUE(status.ok()) << status.ToString();
    const auto pid = static_cast<pid_t>(Expect<GuardianHello>().pid);
    Expect<GuardianSynced>();
    return pid;
  }

  void TearDown() override {
    if (guardian_pid_ > 0 && IsAlive(guardian_pid_)) {
      ::kill(guardian_pid_, SIGTERM);
      EXPECT_TRUE(Eventually([&] { return !IsAlive(guardian_pid_); }));
    }
  }

  void Send(const GuardianCommand& command) { ASSERT_TRUE(link_.Send(Encode(command)).ok()); }

  // The next event of type T; other events are kept in others_.
  template <typename T>
  T Expect() {
    const Deadline deadline = Deadline::After(std::chrono::seconds(10));
    for (;;) {
      auto packet = link_.Receive(deadline);
      EXPECT_TRUE(packet.ok()) << packet.status().ToString();
      if (!packet.ok()) return {};
      auto event = DecodeGuardianEvent(packet->data);
      EXPECT_TRUE(event.ok()) << event.status().ToString();
      if (!event.ok()) return {};
      if (!packet->fds.empty()) descriptor_ = std::move(packet->fds[0]);
      if (const T* wanted = std::get_if<T>(&*event)) return *wanted;
      others_.push_back(*event);
    }
  }

  void Prepare(Generation generation, std::vector<std::string> devices = {}) {
    Send(GuardianPrepare{.generation = generation, .devices = std::move(devices)});
    const auto prepared = Expect<GuardianPrepared>();
    EXPECT_EQ(prepared.generation, generation);
    EXPECT_EQ(prepared.error, "");
  }

  GuardianLaunch Shell(Generation generation, int rank, const std::string& script) const {
    return {.generation = generation,
            .rank = rank,
            .argv = {"/bin/sh", "-c", script},
            .environment = {"PATH=/usr/bin:/bin", "MUSTER_JOB_ID=0123456789"},
            .working_directory = dir_.path(),
            .log_path = LogPath(rank)};
  }

  std::string GuardianLog() const { return dir_ / "guardian.log"; }
  std::string LogPath(int rank) const { return dir_ / ("rank-" + std::to_string(rank) + ".log"); }

  // The pid that a script wrote into a file of the test's directory.
  pid_t AwaitPid(const std::string& name) const {
    pid_t pid = 0;
    EXPECT_TRUE(Eventually([&] {
      const auto text = ReadFile(dir_ / name);
      if (!text.ok() || !text->ends_with('\n')) return false;
      pid = std::stoi(*text);
      return true;
    }));
    return pid;
  }

  void Reconnect() {
    auto connection = ConnectPackets(dir_.path(), kGuardianSocketName);
    ASSERT_TRUE(connection.ok()) << connection.status().ToString();
    link_ = std::move(*connection);
  }

  const TempDirForTest dir_;
  PacketSocket link_;
  pid_t guardian_pid_ = 0;
  UniqueFd descriptor_;  // the last one received
  std::vector<GuardianEvent> others_;
};

}  // namespace muster
