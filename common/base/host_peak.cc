#include "common/base/host_peak.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string>
#include <string_view>

#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

// A line of /proc/self/status: "VmHWM:	  123456 kB". 0 where it is missing.
std::int64_t StatusBytes(std::string_view key) {
  const auto text = ReadFile("/proc/self/status", 1 << 16);
  if (!text.ok()) return 0;
  const std::size_t line = text->find("\n" + std::string(key) + ":");
  if (line == std::string::npos) return 0;
  const std::size_t digits = text->find_first_of("0123456789", line);
  if (digits == std::string::npos) return 0;
  std::int64_t kilobytes = 0;
  std::from_chars(text->data() + digits, text->data() + text->size(), kilobytes);
  return kilobytes * 1024;
}

bool ResetMark() {
  const UniqueFd fd(::open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC));
  return fd.valid() && ::write(fd.get(), "5", 1) == 1;
}

}  // namespace

HostPeak::HostPeak() : of_stage_(ResetMark()), begin_bytes_(StatusBytes("VmRSS")) {}

std::int64_t HostPeak::bytes() const { return StatusBytes("VmHWM"); }

}  // namespace muster
