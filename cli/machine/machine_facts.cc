#include "cli/machine/machine_facts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "cli/base/processes.h"
#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/hub_id.h"
#include "common/base/unique_fd.h"
#include "common/process/cpu_affinity.h"
#include "common/process/run_child.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr Duration kLookUpLimit = std::chrono::seconds(5);
constexpr Duration kVersionLimit = std::chrono::seconds(60);
constexpr int kConnectMillis = 3000;
constexpr int kAnyPortOfOurs = 1;  // a refused connection is an answer
// What v1 of control groups says where there is no limit: the largest number of whole pages.
constexpr std::uint64_t kNoGroupLimit = std::uint64_t{1} << 60;
constexpr const char* kPrograms[] = {"muster-coordinator", "muster-worker", "muster-guardian"};

// Empty: it cannot be read.
std::string Text(const std::string& path) {
  const auto text = ReadFile(path);
  return text.ok() ? *text : "";
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }
std::string Line(const std::string& path) { return FirstLine(Text(path)); }

std::optional<std::uint64_t> Number(const std::string& text) {
  char* end = nullptr;
  const std::uint64_t number = std::strtoull(text.c_str(), &end, 10);
  if (end == text.c_str()) return std::nullopt;
  return number;
}

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// --- memory, processors, limits ---

std::uint64_t MemoryOf(const std::string& key) {
  std::istringstream lines(Text("/proc/meminfo"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + ":")) return Number(line.substr(key.size() + 1)).value_or(0) << 10;
  return 0;
}

std::optional<std::uint64_t> HardLimit(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_max;
}

// The directories of this process's control groups from the innermost one outwards, of the
// hierarchy that has `controller`; version 2 has one for all.
std::vector<std::string> GroupsOf(const std::string& controller) {
  std::string root, path;
  std::istringstream lines(Text("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = names == ",,";
    if (!unified && names.find("," + controller + ",") == std::string::npos) continue;
    if (unified && !root.empty()) continue;
    root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    path = line.substr(second + 1);
  }
  std::vector<std::string> groups;
  if (root.empty()) return groups;
  for (fs::path group = path; group != group.root_path(); group = group.parent_path())
    groups.push_back(root + group.string());
  groups.push_back(root);
  return groups;
}

// The least limit of a process's groups.
template <typename Read>
auto LeastOf(const std::string& controller, Read read) {
  decltype(read(std::string())) least;
  for (const std::string& group : GroupsOf(controller)) {
    const auto limit = read(group);
    if (limit && (!least || *limit < *least)) least = limit;
  }
  return least;
}

std::optional<double> CpuQuota(const std::string& group) {
  std::istringstream both(Line(group + "/cpu.max"));
  double quota = 0, period = 0;
  if (both >> quota >> period && period > 0) return quota / period;
  const auto v1 = Number(Line(group + "/cpu.cfs_quota_us"));
  const auto of = Number(Line(group + "/cpu.cfs_period_us"));
  if (!v1 || !of || *of == 0 || *v1 >= kNoGroupLimit) return std::nullopt;
  return static_cast<double>(*v1) / static_cast<double>(*of);
}

GroupLimits ReadGroupLimits() {
  GroupLimits limits;
  limits.memory_bytes = LeastOf("memory", [](const std::string& group) {
    auto limit = Number(Line(group + "/memory.max"));
    if (!limit) limit = Number(Line(group + "/memory.limit_in_bytes"));
    return limit && *limit < kNoGroupLimit ? limit : std::nullopt;
  });
  limits.cpus = LeastOf("cpu", CpuQuota);
  limits.processes =
      LeastOf("pids", [](const std::string& group) { return Number(Line(group + "/pids.max")); });
  return limits;
}

// "always [madvise] never"
std::string Chosen(const std::string& line) {
  const std::size_t open = line.find('['), close = line.find(']');
  if (open == std::string::npos || close == std::string::npos) return "";
  return line.substr(open + 1, close - open - 1);
}

std::string NamespacesSetting() {
  if (::geteuid() == 0) return "";  // needs none
  constexpr std::pair<const char*, const char*> kRefusals[] = {
      {"user.max_user_namespaces", "0"},
      {"kernel.unprivileged_userns_clone", "0"},
      {"kernel.apparmor_restrict_unprivileged_userns", "1"}};
  for (const auto& [name, value] : kRefusals) {
    std::string path = std::string("/proc/sys/") + name;
    std::ranges::replace(path, '.', '/');
    if (Line(path) == value) return std::string(name) + " = " + value;
  }
  return "";
}

void ReadSystem(MachineFacts& facts) {
  utsname name{};
  if (::uname(&name) == 0) facts.kernel = name.release;
  facts.memory_bytes = MemoryOf("MemTotal");
  facts.memory_available_bytes = MemoryOf("MemAvailable");
  facts.cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.usable_cpus = static_cast<int>(AllowedCpus().size());
  facts.groups = ReadGroupLimits();
  facts.open_files = HardLimit(RLIMIT_NOFILE);
  // The kernel holds nothing of root to it.
  if (::geteuid() != 0) facts.processes = HardLimit(RLIMIT_NPROC);
  if (::geteuid() != 0) facts.locked_bytes = HardLimit(RLIMIT_MEMLOCK);
  std::error_code error;
  facts.has_rdma =
      fs::directory_iterator("/sys/class/infiniband", error) != fs::directory_iterator();
  facts.overcommit = static_cast<int>(Number(Line("/proc/sys/vm/overcommit_memory")).value_or(0));
  facts.map_count = Number(Line("/proc/sys/vm/max_map_count")).value_or(0);
  facts.huge_pages = Chosen(Line("/sys/kernel/mm/transparent_hugepage/enabled"));
  facts.namespaces_setting = NamespacesSetting();
  facts.unix_seconds = std::time(nullptr);
  timex clock{};
  facts.clock_in_step = ::adjtimex(&clock) >= 0 && (clock.status & STA_UNSYNC) == 0;
}

// --- directories ---

// That have files of other machines: locks and SQLite's memory map depend on their server.
std::string NetworkFileSystem(std::uint64_t type) {
  constexpr std::pair<std::uint64_t, const char*> kKnown[] = {
      {0x6969, "NFS"},        {0xff534d42, "CIFS"}, {0xfe534d42, "SMB"},
      {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"}, {0x00c36400, "Ceph"}};
  for (const auto& [magic, name] : kKnown)
    if (type == magic) return name;
  return "";
}

// `path`, or the lowest directory above it that exists.
std::string Existing(const std::string& path) {
  std::error_code error;
  fs::path dir = path;
  while (!fs::is_directory(dir, error) && dir.has_relative_path()) dir = dir.parent_path();
  return dir.string();
}

DirectoryFacts ReadDirectory(const std::string& path) {
  DirectoryFacts facts{.path = path};
  const std::string dir = Existing(path);
  struct statfs info {};
  if (::statfs(dir.c_str(), &info) != 0) {
    facts.error = std::strerror(errno);
    return facts;
  }
  const auto block = static_cast<std::uint64_t>(info.f_frsize);
  facts.free_bytes = std::uint64_t{info.f_bavail} * block;
  facts.total_bytes = std::uint64_t{info.f_blocks} * block;
  facts.network_file_system = NetworkFileSystem(static_cast<std::uint32_t>(info.f_type));
  std::string name = dir + "/muster-doctor-XXXXXX";
  const UniqueFd fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd.valid()) {
    facts.error = std::strerror(errno);
    return facts;
  }
  if (::write(fd.get(), "\n", 1) != 1) facts.error = std::strerror(errno);
  facts.locks = LockFile(fd.get()).ok();
  ::unlink(name.c_str());
  return facts;
}

// --- names, ports, peers ---

// A program of libc, since a lookup within this process cannot be given up.
bool Resolves(const std::string& name) {
  const auto getent = FindProgram("getent", Environment("PATH") + ":/usr/bin:/bin", "/");
  if (!getent.ok()) return true;
  const auto outcome = RunChild({.spawn = {.argv = {*getent, "ahosts", name}, .environment = {}},
                                 .input = "",
                                 .limit = kLookUpLimit});
  return outcome.ok() && outcome->ok();
}

std::string HubHost() {
  std::string url = Environment("HF_ENDPOINT");
  if (url.empty()) url = kHubEndpoint;
  if (const std::size_t scheme = url.find("://"); scheme != std::string::npos)
    url.erase(0, scheme + 3);
  return url.substr(0, url.find_first_of(":/"));
}

sockaddr_in Loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool APortIsFree() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in any = Loopback(0);
  return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
         ::listen(fd.get(), 1) == 0;
}

// Empty: the peer's machine answers, even if nothing listens there.
std::string TryConnect(const sockaddr* to, socklen_t length) {
  const UniqueFd fd(::socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), to, length) != 0 && errno != EINPROGRESS)
    return errno == ECONNREFUSED ? "" : std::strerror(errno);
  pollfd ready{fd.get(), POLLOUT, 0};
  if (::poll(&ready, 1, kConnectMillis) <= 0)
    return "no answer within " + std::to_string(kConnectMillis / 1000) + " s";
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 || error == ECONNREFUSED ? "" : std::strerror(error);
}

PeerFacts ReadPeer(const std::string& address) {
  PeerFacts facts{.address = address, .error = ""};
  const std::size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (colon == std::string::npos || host.empty()) {
    facts.error = "is not HOST:PORT";
    facts.is_address = false;
    return facts;
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found);
  if (failed != 0) {
    facts.error = ::gai_strerror(failed);
    return facts;
  }
  facts.error = TryConnect(found->ai_addr, found->ai_addrlen);
  char ip[NI_MAXHOST] = {};
  if (::getnameinfo(found->ai_addr, found->ai_addrlen, ip, sizeof ip, nullptr, 0, NI_NUMERICHOST) ==
      0)
    facts.ip = ip;
  ::freeaddrinfo(found);
  return facts;
}

void ReadNetwork(const std::vector<std::string>& peers, MachineFacts& facts) {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) facts.host_name = name;
  facts.host_name_resolves = Resolves(facts.host_name);
  facts.hub_host = HubHost();
  facts.hub_host_resolves = Resolves(facts.hub_host);
  std::istringstream range(Line("/proc/sys/net/ipv4/ip_local_port_range"));
  range >> facts.first_port >> facts.last_port;
  facts.port_is_free = APortIsFree();
  const sockaddr_in self = Loopback(kAnyPortOfOurs);
  facts.loopback_error = TryConnect(reinterpret_cast<const sockaddr*>(&self), sizeof self);
  for (const std::string& peer : peers) facts.peers.push_back(ReadPeer(peer));
}

// --- programs and devices ---

// What `path` prints first, after its name: "VERSION (commit C)".
ProgramFacts ReadProgram(const std::string& path) {
  ProgramFacts facts{.name = fs::path(path).filename(), .version = "", .error = ""};
  const auto outcome =
      RunChild({.spawn = {.argv = {path, "--version"}, .environment = OwnEnvironment()},
                .input = "",
                .limit = kVersionLimit});
  if (!outcome.ok() || !outcome->ok()) {
    facts.error = outcome.ok() ? outcome->Describe() : outcome.status().message();
    // What it says first is why; the end of a longer text is what to do.
    if (outcome.ok() && !FirstLine(outcome->output).empty())
      facts.error = FirstLine(outcome->output);
    return facts;
  }
  const std::string line = FirstLine(outcome->output);
  facts.version = line.substr(std::min(line.size(), line.find(' ') + 1));
  return facts;
}

void ReadPrograms(MachineFacts& facts) {
  const auto dir = OwnBinaryDirectory();
  if (!dir.ok()) return;
  facts.own_path = *dir + "/muster";
  facts.own_version = ReadProgram(facts.own_path).version;
  for (const char* const program : kPrograms)
    facts.programs.push_back(ReadProgram(*dir + "/" + program));
  facts.trainer = ReadProgram(*dir + "/muster-trainer");
  std::error_code error;
  const auto found = FindProgram("muster", Environment("PATH"), "/");
  if (found.ok()) facts.path_muster = fs::canonical(*found, error).string();
}

void ReadGpus(MachineFacts& facts) {
  std::error_code error;
  for (const auto& device : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    // Displays and processors without one, by PCI's codes of classes.
    const std::string kind = Line(device.path() / "class");
    if (Line(device.path() / "vendor") == "0x10de" && kind.starts_with("0x03")) ++facts.nvidia_gpus;
  }
  facts.nvidia_driver = ::access("/proc/driver/nvidia/version", R_OK) == 0;
}

}  // namespace

MachineFacts ReadMachine(const MachineQuestion& question) {
  MachineFacts facts;
  ReadSystem(facts);
  ReadNetwork(question.peers, facts);
  const std::string temporary = Environment("TMPDIR");
  facts.state = ReadDirectory(question.state_dir);
  facts.temporary = ReadDirectory(temporary.empty() ? "/tmp" : temporary);
  facts.shared_memory = ReadDirectory("/dev/shm");
  ReadPrograms(facts);
  ReadGpus(facts);
  return facts;
}

}  // namespace muster
