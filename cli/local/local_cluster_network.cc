#include "cli/local/local_cluster_network.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "common/base/clock.h"
#include "common/base/files.h"
#include "common/process/network_namespace.h"
#include "common/process/spawn.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr char kBridge[] = "muster0";
constexpr char kNodeInterface[] = "eth0";
constexpr char kSubnet[] = "10.77.0.";
constexpr char kPrefixLength[] = "/24";
// The hub has no other process, so every port is free, and a restarted coordinator keeps its port.
constexpr char kCoordinatorPort[] = "7700";
// Where `ip` lies also for users whose PATH has no folders of root.
constexpr char kProgramFolders[] = "/usr/sbin:/sbin:/usr/bin:/bin";
constexpr auto kIpTimeout = std::chrono::seconds(10);

Result<std::string> FindIp() {
  auto ip = FindProgram("ip", kProgramFolders, "/");
  if (ip.ok()) return ip;
  return FailedPrecondition(
      "network namespaces require the program ip, which is not installed\n"
      "  next: install the package iproute2, or start without --netns");
}

// Waits for a program; an error carries its output. The pipe is never full: `ip` prints one line.
Status WaitFor(pid_t pid, const UniqueFd& output, const std::string& what) {
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd pidfd, OpenPidfd(pid));
  const Deadline deadline = Deadline::After(kIpTimeout);
  pollfd entry{pidfd.get(), POLLIN, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, static_cast<int>(deadline.RemainingMillis().count()));
  } while (ready < 0 && errno == EINTR);
  if (ready <= 0) ::kill(pid, SIGKILL);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (ready <= 0) return DeadlineExceeded(what + " did not end within 10 s");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return OkStatus();
  char text[1024];
  const ssize_t n = ::read(output.get(), text, sizeof text);
  std::string said(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  return Internal(what + " failed: " + (said.empty() ? "no message" : said));
}

// Runs `ip` with these words; an error carries its output.
Status Ip(const std::string& words) {
  SpawnOptions options;
  MUSTER_ASSIGN_OR_RETURN(const std::string program, FindIp());
  options.argv = {program};
  std::istringstream stream(words);
  for (std::string word; stream >> word;) options.argv.push_back(word);
  options.environment = {"LC_ALL=C"};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus(errno, "make a pipe");
  const UniqueFd output(ends[0]);
  const UniqueFd input(ends[1]);
  options.output_fd = input.get();
  MUSTER_ASSIGN_OR_RETURN(const pid_t pid, SpawnChild(options));
  return WaitFor(pid, output, "ip " + words);
}

bool HasCapability(std::uint64_t effective, int capability) {
  return (effective >> capability & 1) != 0;
}

// The same whenever a node is made: others remember it beside the node's address for up to a
// minute, and would not reach a new one.
std::string HardwareAddress(int index) {
  char text[18];
  std::snprintf(text, sizeof(text), "02:00:00:00:%02x:%02x", index >> 8 & 0xff, index & 0xff);
  return text;
}

}  // namespace

LocalClusterNetwork::LocalClusterNetwork(std::string cluster_dir)
    : cluster_dir_(std::move(cluster_dir)) {}

Status LocalClusterNetwork::CheckPossible() {
  const auto status = ReadFile("/proc/self/status", 64 << 10);
  std::uint64_t effective = 0;
  constexpr std::string_view kField = "CapEff:\t";
  if (const std::size_t at = status.ok() ? status->find(kField) : std::string::npos;
      at != std::string::npos)
    std::from_chars(status->data() + at + kField.size(), status->data() + status->size(), effective,
                    16);
  if (!HasCapability(effective, CAP_NET_ADMIN) || !HasCapability(effective, CAP_SYS_ADMIN))
    return PermissionDenied(
        "network namespaces require root, or CAP_NET_ADMIN and CAP_SYS_ADMIN\n"
        "  next: run as root, or start without --netns");
  return FindIp().status();
}

std::string LocalClusterNetwork::NodeName(int index) { return "node-" + std::to_string(index); }

std::string LocalClusterNetwork::NodeAddress(int index) {
  return kSubnet + std::to_string(1 + index);
}

std::string LocalClusterNetwork::CoordinatorAddress() {
  return std::string(kSubnet) + "1:" + kCoordinatorPort;
}

std::string LocalClusterNetwork::Namespace(const std::string& place) const {
  return ClusterNamespace(cluster_dir_, place);
}

std::vector<std::string> LocalClusterNetwork::Names() const {
  const std::string prefix = ClusterNamespacePrefix(cluster_dir_);
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(NamespacePath(""), error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool LocalClusterNetwork::Exists() const { return !Names().empty(); }

Status LocalClusterNetwork::Make(int nodes, const std::set<std::string>& in_use) {
  if (in_use.empty()) {
    MUSTER_RETURN_IF_ERROR(Remove());
    MUSTER_RETURN_IF_ERROR(MakeHub());
  }
  for (int i = 1; i <= nodes; ++i)
    if (!in_use.contains(NodeName(i))) {
      MUSTER_RETURN_IF_ERROR(MakeNode(i));
    }
  return OkStatus();
}

Status LocalClusterNetwork::MakeHub() {
  const std::string hub = Namespace(kHubNamespace);
  const std::string address = std::string(kSubnet) + "1" + kPrefixLength;
  for (const std::string& words : {
           "netns add " + hub,
           "-n " + hub + " link set lo up",
           "-n " + hub + " link add " + kBridge + " type bridge",
           "-n " + hub + " addr add " + address + " dev " + kBridge,
           "-n " + hub + " link set " + kBridge + " up",
       }) {
    MUSTER_RETURN_IF_ERROR(Ip(words));
  }
  return OkStatus();
}

Status LocalClusterNetwork::MakeNode(int index) {
  const std::string port = NodeName(index);
  const std::string hub = Namespace(kHubNamespace);
  const std::string node = Namespace(port);
  MUSTER_RETURN_IF_ERROR(Delete(node));
  for (const std::string& words : {
           "netns add " + node,
           "-n " + hub + " link add " + port + " type veth peer name " + kNodeInterface +
               " netns " + node,
           "-n " + hub + " link set " + port + " master " + kBridge + " up",
           "-n " + node + " link set lo up",
           "-n " + node + " addr add " + NodeAddress(index) + kPrefixLength + " dev " +
               kNodeInterface,
           "-n " + node + " link set " + kNodeInterface + " address " + HardwareAddress(index),
           "-n " + node + " link set " + kNodeInterface + " up",
       }) {
    MUSTER_RETURN_IF_ERROR(Ip(words));
  }
  return OkStatus();
}

Status LocalClusterNetwork::Delete(const std::string& name) {
  std::error_code error;
  if (!fs::exists(NamespacePath(name), error)) return OkStatus();
  // The kernel takes a namespace apart only after its name and its last process are gone, and both
  // ends of a veth pair go with either; without this the port's name could still be taken below.
  const std::string place = name.substr(ClusterNamespacePrefix(cluster_dir_).size());
  if (place != kHubNamespace)
    static_cast<void>(Ip("-n " + Namespace(kHubNamespace) + " link del " + place));
  return Ip("netns del " + name);
}

Status LocalClusterNetwork::Remove() {
  for (const std::string& name : Names()) {
    MUSTER_RETURN_IF_ERROR(Delete(name));
  }
  return OkStatus();
}

Status LocalClusterNetwork::CheckLink(const std::string& node) const {
  std::error_code error;
  if (node != kHubNamespace && fs::exists(NamespacePath(Namespace(node)), error)) return OkStatus();
  return NotFound("the cluster in " + cluster_dir_ + " has no network namespace for " + node +
                  "; start the cluster with muster up --netns");
}

Status LocalClusterNetwork::SetLink(const std::string& node, bool up) {
  MUSTER_RETURN_IF_ERROR(CheckLink(node));
  return Ip("-n " + Namespace(kHubNamespace) + " link set " + node + (up ? " up" : " down"));
}

}  // namespace muster
