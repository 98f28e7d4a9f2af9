#include "trainer/supervise/rank_faults.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

constexpr double kLargestSlowdown = 100;

Result<double> ParseFraction(std::string_view text) {
  const bool percent = text.ends_with('%');
  const std::string_view digits = percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (percent) value /= 100;
  if (error != std::errc{} || end != digits.data() + digits.size() || !(value >= 0) ||
      value > kLargestSlowdown) {
    return InvalidArgument("slow takes a fraction of the computing time, as in 0.3 or 30%, not '" +
                           std::string(text) + "'");
  }
  return value;
}

Result<int> ParseExitCode(std::string_view text) {
  if (text.empty()) return 1;
  int code = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), code);
  if (error != std::errc{} || end != text.data() + text.size() || code < 0 || code > 255) {
    return InvalidArgument("exit takes a code from 0 to 255, not '" + std::string(text) + "'");
  }
  return code;
}

std::uint64_t NumberBehind(const std::string& text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + key.size(), nullptr, 10);
}

std::optional<std::uint64_t> ReadNumber(const std::string& path) {
  const Result<std::string> text = ReadFile(path);
  std::uint64_t value = 0;
  if (!text.ok()) return std::nullopt;
  const auto result = std::from_chars(text->data(), text->data() + text->size(), value);
  return result.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

// Of cgroup v2 at its usual place; without one there is no limit.
MemoryRoom ReadMemoryRoom() {
  MemoryRoom room;
  const Result<std::string> host = ReadFile("/proc/meminfo");
  if (host.ok()) room.available_on_host = NumberBehind(*host, "MemAvailable:") * 1024;
  const Result<std::string> own = ReadFile("/proc/self/cgroup");
  if (!own.ok()) return room;
  const std::size_t begin = own->find("0::/");
  if (begin == std::string::npos) return room;
  const std::size_t end = own->find('\n', begin);
  const std::string directory = "/sys/fs/cgroup" + own->substr(begin + 3, end - begin - 3) + "/";
  room.limit = ReadNumber(directory + "memory.max");
  room.used = ReadNumber(directory + "memory.current").value_or(0);
  room.swaps = host.ok() && NumberBehind(*host, "SwapTotal:") > 0 &&
               ReadNumber(directory + "memory.swap.max") != std::optional<std::uint64_t>(0);
  return room;
}

class ProcessEffects final : public RankFaultEffects {
 public:
  void Hang() override {
    for (;;) ::pause();
  }
  void Exit(int code) override {
    std::fflush(nullptr);
    ::_exit(code);
  }
  void RunOutOfMemory() override {
    const MemoryRoom room = ReadMemoryRoom();
    if (MayFillCgroup(room)) FillMemory(*room.limit);
    // No address space is as large, so this throws on any machine, and harms none.
    const volatile std::size_t bytes = std::numeric_limits<std::ptrdiff_t>::max();
    ::operator delete(::operator new(bytes));
  }
  void Sleep(Duration time) override {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    const timespec length{static_cast<time_t>(left / 1'000'000'000), left % 1'000'000'000};
    (void)::ppoll(nullptr, 0, &length, nullptr);
  }

 private:
  // Up to as much as the limit is: by then the kernel has ended this process. It is to choose this
  // one, not a peer in the same cgroup.
  static void FillMemory(std::uint64_t limit) {
    const UniqueFd score(::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC));
    if (!score.valid() || ::write(score.get(), "1000", 4) != 4) return;
    constexpr std::size_t kBlock = std::size_t{8} << 20;
    std::vector<std::unique_ptr<char[]>> blocks;
    for (std::uint64_t filled = 0; filled <= limit; filled += kBlock) {
      blocks.push_back(std::make_unique_for_overwrite<char[]>(kBlock));
      std::memset(blocks.back().get(), 1, kBlock);
    }
  }
};

}  // namespace

Result<RankFault> ParseRankFault(std::string_view kind, std::string_view argument) {
  constexpr std::pair<std::string_view, RankFaultKind> kPlain[] = {
      {"hang-data", RankFaultKind::kHangData},
      {"hang-collective", RankFaultKind::kHangCollective},
      {"nan", RankFaultKind::kNan},
      {"oom", RankFaultKind::kOom}};
  for (const auto& [name, value] : kPlain) {
    if (kind != name) continue;
    if (!argument.empty()) return InvalidArgument(std::string(kind) + " takes no argument");
    return RankFault{.kind = value};
  }
  if (kind == "slow") {
    MUSTER_ASSIGN_OR_RETURN(const double fraction, ParseFraction(argument));
    return RankFault{.kind = RankFaultKind::kSlow, .fraction = fraction};
  }
  if (kind == "exit") {
    MUSTER_ASSIGN_OR_RETURN(const int code, ParseExitCode(argument));
    return RankFault{.kind = RankFaultKind::kExit, .exit_code = code};
  }
  return InvalidArgument("there is no fault '" + std::string(kind) + "' of a rank");
}

bool MayFillCgroup(const MemoryRoom& room) {
  if (!room.limit || room.swaps) return false;
  const std::uint64_t left = *room.limit - std::min(*room.limit, room.used);
  return left <= room.available_on_host / 2;
}

RankFaultEffects& ProcessFaultEffects() {
  static ProcessEffects effects;
  return effects;
}

Status RankFaults::Arm(std::string_view kind, std::string_view argument) {
  MUSTER_ASSIGN_OR_RETURN(const RankFault fault, ParseRankFault(kind, argument));
  std::lock_guard lock(mutex_);
  armed_[static_cast<std::size_t>(fault.kind)] = fault;
  return OkStatus();
}

std::optional<RankFault> RankFaults::Take(RankFaultKind kind) {
  std::lock_guard lock(mutex_);
  return std::exchange(armed_[static_cast<std::size_t>(kind)], std::nullopt);
}

void RankFaults::AtData() {
  if (pause_ > Duration::zero()) effects_.Sleep(pause_);
  if (Take(RankFaultKind::kHangData)) effects_.Hang();
  if (Take(RankFaultKind::kOom)) effects_.RunOutOfMemory();
  if (const auto fault = Take(RankFaultKind::kExit)) effects_.Exit(fault->exit_code);
}

double RankFaults::LossFactor() {
  return Take(RankFaultKind::kNan) ? std::numeric_limits<double>::quiet_NaN() : 1;
}

void RankFaults::BeforeLastCollective(Duration computed) {
  if (Take(RankFaultKind::kHangCollective)) effects_.Hang();
  std::optional<RankFault> slow;
  {
    std::lock_guard lock(mutex_);
    slow = armed_[static_cast<std::size_t>(RankFaultKind::kSlow)];
  }
  if (slow && slow->fraction > 0) {
    effects_.Sleep(FromSeconds(ToSeconds(computed) * slow->fraction));
  }
}

Duration PauseOf(const char* text) {
  const std::string_view digits = text == nullptr ? "" : text;
  double seconds = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool is_one =
      error == std::errc{} && end == digits.data() + digits.size() && seconds >= 0 && seconds <= 60;
  return is_one ? FromSeconds(seconds) : Duration::zero();
}

}  // namespace muster
