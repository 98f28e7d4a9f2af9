#include "common/base/failpoint.h"

#include <signal.h>

#include <atomic>
#include <charconv>
#include <string>

namespace muster {
namespace {

std::atomic<int> passings_left = 0;

}  // namespace

void PassArmedFailpoint() {
  if (passings_left.fetch_sub(1) == 1) ::raise(SIGKILL);
}

Status ArmFailpoint(const char* value) {
  const std::string_view text = value == nullptr ? "" : value;
  if (text.empty()) return OkStatus();
  const std::string_view name = text.substr(0, text.find(':'));
  const std::string_view count = name == text ? "1" : text.substr(name.size() + 1);
  int passings = 0;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), passings);
  const int number = FailpointNumber(name);
  if (number < 0 || error != std::errc() || end != count.data() + count.size() || passings < 1)
    return InvalidArgument("MUSTER_FAILPOINT=" + std::string(text) +
                           " is for tests, which kill this process with it: NAME or NAME:N of "
                           "common/base/failpoint.h; unset it");
  passings_left = passings;
  armed_failpoint = number;
  return OkStatus();
}

}  // namespace muster
