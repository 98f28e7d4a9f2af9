#include "common/process/cpu_affinity.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <string>
#include <thread>

#include "common/process/run_child.h"

namespace muster {
namespace {

// What /proc says that a thread of this process may use.
std::string AllowedOf(pid_t thread) {
  std::ifstream status("/proc/self/task/" + std::to_string(thread) + "/status");
  const std::string key = "Cpus_allowed_list:\t";
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(key)) return line.substr(key.size());
  return "?";
}

int FirstAllowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) return cpu;
  return -1;
}

TEST(KernelMask, HasABitForEachNumber) {
  EXPECT_EQ(KernelMask({0, 3}), (std::vector<unsigned long>{9}));
  EXPECT_EQ(KernelMask({64}), (std::vector<unsigned long>{0, 1}));
  EXPECT_TRUE(KernelMask({}).empty());
}

TEST(SpawnChild, KeepsTheChildToItsProcessors) {
  const int cpu = FirstAllowed();
  ASSERT_GE(cpu, 0);
  const auto outcome =
      RunChild({.spawn = {.argv = {"/bin/grep", "Cpus_allowed_list", "/proc/self/status"},
                          .cpus = {cpu},
                          .memory_node = 0}});
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_EQ(outcome->output, "Cpus_allowed_list:\t" + std::to_string(cpu) + "\n");
}

TEST(SpawnChild, StartsAChildWhoseProcessorsAreNotThere) {
  const auto outcome =
      RunChild({.spawn = {.argv = {"/bin/true"}, .cpus = {8191}, .memory_node = 1023}});
  ASSERT_TRUE(outcome.ok()) << outcome.status().message();
  EXPECT_TRUE(outcome->ok()) << outcome->Describe();
}

TEST(KeepProcessOn, ReachesEveryThread) {
  // In a process of its own, so that the other tests keep their processors.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const int cpu = FirstAllowed();
    std::atomic<pid_t> other = 0;
    std::atomic<bool> end = false;
    std::thread thread([&] {
      other = static_cast<pid_t>(::syscall(SYS_gettid));
      other.notify_one();
      end.wait(false);
    });
    other.wait(0);
    const bool ok = KeepProcessOn(::getpid(), {cpu}).ok() &&
                    AllowedOf(::getpid()) == std::to_string(cpu) &&
                    AllowedOf(other) == std::to_string(cpu);
    end = true;
    end.notify_one();
    thread.join();
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(KeepProcessOn, ReportsWhatIsWrong) {
  EXPECT_EQ(KeepProcessOn(0x7fffffff, {0}).code(), StatusCode::kNotFound);
  EXPECT_FALSE(KeepProcessOn(::getpid(), {8191}).ok());
}

}  // namespace
}  // namespace muster
