#include "common/process/network_namespace.h"

#include <fcntl.h>
#include <net/route.h>
#include <sched.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <sstream>
#include <vector>

#include "common/base/check.h"
#include "common/base/files.h"

namespace muster {
namespace {

constexpr char kOwnNamespace[] = "/proc/thread-self/ns/net";
constexpr std::size_t kMaxRoutesBytes = 1 << 20;

// FNV-1a: the same in every program and every release, which std::hash is not.
std::uint64_t HashOf(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Whether any line from `first_line` on has RTF_GATEWAY in its column `flags_column`.
bool AnyGateway(std::string_view text, int first_line, std::size_t flags_column) {
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 0; std::getline(lines, line); ++number) {
    if (number < first_line) continue;
    std::istringstream words(line);
    std::vector<std::string> columns;
    for (std::string word; words >> word;) columns.push_back(word);
    if (columns.empty()) continue;
    if (columns.size() <= flags_column) return true;
    const std::string& text_flags = columns[flags_column];
    unsigned flags = 0;
    const auto [end, error] =
        std::from_chars(text_flags.data(), text_flags.data() + text_flags.size(), flags, 16);
    if (error != std::errc() || (flags & RTF_GATEWAY) != 0) return true;
  }
  return false;
}

}  // namespace

std::string ClusterNamespacePrefix(const std::string& cluster_dir) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                static_cast<unsigned long long>(HashOf(cluster_dir)));
  return std::string("muster-") + digits + "-";
}

std::string ClusterNamespace(const std::string& cluster_dir, const std::string& place) {
  return ClusterNamespacePrefix(cluster_dir) + place;
}

std::string NamespacePath(const std::string& name) { return "/run/netns/" + name; }

Result<NamespaceScope> NamespaceScope::Enter(const std::string& name) {
  UniqueFd home(::open(kOwnNamespace, O_RDONLY | O_CLOEXEC));
  if (!home.valid()) return ErrnoStatus(errno, std::string("open ") + kOwnNamespace);
  const std::string path = NamespacePath(name);
  const UniqueFd target(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!target.valid()) return ErrnoStatus(errno, "open network namespace " + path);
  if (::setns(target.get(), CLONE_NEWNET) != 0)
    return ErrnoStatus(errno, "enter network namespace " + path);
  return NamespaceScope(std::move(home));
}

NamespaceScope::~NamespaceScope() {
  if (!home_.valid()) return;
  MUSTER_CHECK(::setns(home_.get(), CLONE_NEWNET) == 0, "cannot leave a network namespace");
}

bool HasGatewayRoute(std::string_view routes, std::string_view ipv6_routes) {
  // The first table has a line of headings.
  return AnyGateway(routes, 1, 3) || AnyGateway(ipv6_routes, 0, 8);
}

Status CheckPrivateNetwork(const std::string& cluster_dir) {
  const std::string name = ClusterNamespace(cluster_dir, kHubNamespace);
  struct stat own {};
  struct stat hub {};
  if (::stat(kOwnNamespace, &own) != 0) return ErrnoStatus(errno, "look at the network namespace");
  if (::stat(NamespacePath(name).c_str(), &hub) != 0 || own.st_dev != hub.st_dev ||
      own.st_ino != hub.st_ino)
    return PermissionDenied("plain text for other nodes is only allowed in the network namespace " +
                            name + ", and this process is not there; use muster up --netns");
  MUSTER_ASSIGN_OR_RETURN(const std::string routes, ReadFile("/proc/net/route", kMaxRoutesBytes));
  // Absent where the kernel has no IPv6.
  const auto ipv6_routes = ReadFile("/proc/net/ipv6_route", kMaxRoutesBytes);
  if (!HasGatewayRoute(routes, ipv6_routes.ok() ? *ipv6_routes : "")) return OkStatus();
  return PermissionDenied("the network namespace " + name +
                          " has a route by a gateway, so plain text could leave this machine; "
                          "remove the route");
}

}  // namespace muster
