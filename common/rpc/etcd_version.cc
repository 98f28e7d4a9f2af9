#include "common/rpc/etcd_version.h"

#include <array>
#include <charconv>
#include <string_view>

namespace muster {
namespace {

// {3, 4, 23}; what is missing or no number is -1.
std::array<int, 3> NumbersOf(std::string_view version) {
  std::array<int, 3> numbers = {-1, -1, -1};
  for (int& number : numbers) {
    const auto [end, error] =
        std::from_chars(version.data(), version.data() + version.size(), number);
    if (error != std::errc()) break;
    version.remove_prefix(static_cast<std::size_t>(end - version.data()));
    if (version.starts_with('.')) version.remove_prefix(1);
  }
  return numbers;
}

}  // namespace

Status CheckEtcdVersion(const std::string& version, bool allow_unsafe) {
  const auto [major, minor, patch] = NumbersOf(version);
  if (major < 3 || (major == 3 && minor < 4))
    return FailedPrecondition("etcd " + version + " is too old; install 3.4 or newer");
  const bool unsafe = major == 3 && minor == 5 && patch <= 5;
  if (unsafe && !allow_unsafe)
    return FailedPrecondition(
        "etcd " + version +
        " may lose what it has acknowledged when a member crashes (3.5.0 to 3.5.5); install 3.5.6 "
        "or newer, or use --allow-unsafe-etcd where state may be lost");
  return OkStatus();
}

}  // namespace muster
