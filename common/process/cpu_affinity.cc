#include "common/process/cpu_affinity.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace muster {
namespace {

constexpr int kBitsPerWord = 8 * sizeof(unsigned long);
// A thread that starts another one meanwhile does so before or after it was set, so that a second
// look finds it; more of them only for threads that start threads in a chain.
constexpr int kLooks = 4;

// The kernel's own limit of processors.
constexpr int kMaxCpus = 8192;

struct FreeSet {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};

std::set<pid_t> ThreadsOf(pid_t pid) {
  std::set<pid_t> threads;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    const std::string name = entry.path().filename().string();
    pid_t thread = 0;
    std::from_chars(name.data(), name.data() + name.size(), thread);
    if (thread > 0) threads.insert(thread);
  }
  return threads;
}

}  // namespace

std::vector<unsigned long> KernelMask(const std::vector<int>& numbers) {
  std::vector<unsigned long> mask;
  for (const int number : numbers) {
    const auto word = static_cast<std::size_t>(number / kBitsPerWord);
    mask.resize(std::max(mask.size(), word + 1));
    mask[word] |= 1UL << (number % kBitsPerWord);
  }
  return mask;
}

std::vector<int> AllowedCpus() {
  std::vector<int> cpus;
  const std::unique_ptr<cpu_set_t, FreeSet> set(CPU_ALLOC(kMaxCpus));
  const std::size_t bytes = CPU_ALLOC_SIZE(kMaxCpus);
  if (::sched_getaffinity(0, bytes, set.get()) != 0) return cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu)
    if (CPU_ISSET_S(static_cast<std::size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
  return cpus;
}

Status KeepProcessOn(pid_t pid, const std::vector<int>& cpus) {
  const std::vector<unsigned long> mask = KernelMask(cpus);
  std::set<pid_t> done;
  for (int look = 0; look < kLooks; ++look) {
    const std::set<pid_t> threads = ThreadsOf(pid);
    if (threads.empty()) return NotFound("process " + std::to_string(pid) + " is gone");
    bool found_new = false;
    for (const pid_t thread : threads) {
      if (!done.insert(thread).second) continue;
      found_new = true;
      const long result = ::syscall(SYS_sched_setaffinity, thread,
                                    mask.size() * sizeof(unsigned long), mask.data());
      // One that has ended meanwhile needs nothing any more.
      if (result != 0 && errno != ESRCH)
        return ErrnoStatus(errno, "keep process " + std::to_string(pid) + " to its processors");
    }
    if (!found_new) break;
  }
  return OkStatus();
}

}  // namespace muster
