#include "cli/machine/machine_advice.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/base/output.h"

namespace muster {
namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;
// A coordinator holds a descriptor per worker and client, a gang's rank 0 one per rank.
constexpr std::uint64_t kFewOpenFiles = 4096;
// A rank has some dozens of threads.
constexpr std::uint64_t kFewProcesses = 2048;
// NCCL takes 10 MB of /dev/shm per GPU that it connects, a data loader of PyTorch a batch each.
constexpr std::uint64_t kLittleSharedMemory = kGiB;
// The store, logs, and a node's job files; checkpoints lie in the jobs' own directories.
constexpr std::uint64_t kLittleState = kGiB;
constexpr std::uint64_t kLittleTemporary = 64 * kMiB;
// LibTorch alone takes 0.3 GiB.
constexpr std::uint64_t kLittleMemory = 2 * kGiB;
// The kernel's default; an allocator that maps much reaches it.
constexpr std::uint64_t kFewMaps = 65530;
constexpr int kFewPorts = 1000;
// Nothing was built before it: 2026-01-01.
constexpr std::int64_t kEarliest = 1767225600;

struct KernelVersion {
  int major = 0, minor = 0;
  friend auto operator<=>(const KernelVersion&, const KernelVersion&) = default;
};

KernelVersion VersionOf(const std::string& release) {
  char* end = nullptr;
  KernelVersion version;
  version.major = static_cast<int>(std::strtol(release.c_str(), &end, 10));
  if (*end == '.') version.minor = static_cast<int>(std::strtol(end + 1, nullptr, 10));
  return version;
}

Finding Ok(std::string check, std::string what) {
  return {
      .check = std::move(check), .verdict = Verdict::kOk, .what = std::move(what), .change = ""};
}
Finding Bad(Verdict verdict, std::string check, std::string what, std::string change,
            std::string command = "") {
  return {.check = std::move(check),
          .verdict = verdict,
          .what = std::move(what),
          .change = std::move(change),
          .command = std::move(command)};
}

Finding Kernel(const MachineFacts& facts) {
  const std::string is = "Linux " + facts.kernel;
  const KernelVersion version = VersionOf(facts.kernel);
  if (version < KernelVersion{5, 9})
    return Bad(
        Verdict::kFail, "kernel",
        is + " has no close_range, by which programs start without the descriptors of others",
        "the machine's administrator installs Linux 5.9 or newer");
  if (version < KernelVersion{6, 1})
    return Bad(Verdict::kWarn, "kernel",
               is + " makes no huge pages on request; snapshots in memory cost more of each step",
               "the machine's administrator installs Linux 6.1 or newer");
  return Ok("kernel", is);
}

Finding Memory(const MachineFacts& facts) {
  std::string is = HumanBytes(facts.memory_available_bytes) + " of " +
                   HumanBytes(facts.memory_bytes) + " are available";
  const auto& limit = facts.groups.memory_bytes;
  if (limit && *limit < facts.memory_bytes) is += "; a control group allows " + HumanBytes(*limit);
  if (limit && *limit < kLittleMemory)
    return Bad(Verdict::kWarn, "memory", is + ", and a trainer needs more: the kernel will end it",
               "raise the limit where it is set: MemoryMax of the systemd unit, --memory of the "
               "container, or Slurm's --mem");
  if (facts.memory_available_bytes < kLittleMemory)
    return Bad(Verdict::kWarn, "memory", is + ", and a trainer needs more",
               "end other programs; muster-trainer plan says what a job needs");
  return Ok("memory", is);
}

Finding Cpus(const MachineFacts& facts) {
  const std::string is =
      std::to_string(facts.usable_cpus) + " of " + std::to_string(facts.cpus) + " may be used";
  const auto& quota = facts.groups.cpus;
  if (quota && *quota < facts.usable_cpus)
    return Bad(Verdict::kWarn, "cpus",
               is + ", and a control group allows the time of " + Fixed(*quota, 1) +
                   ": ranks stop in the middle of a step when it is used up",
               "raise the limit where it is set (CPUQuota of the systemd unit, --cpus of the "
               "container), or give it whole processors instead");
  return Ok("cpus", is);
}

Finding OpenFiles(const MachineFacts& facts) {
  if (!facts.open_files || *facts.open_files >= kFewOpenFiles)
    return Ok("open-files",
              facts.open_files ? "at most " + std::to_string(*facts.open_files) : "no limit");
  return Bad(Verdict::kWarn, "open-files",
             "at most " + std::to_string(*facts.open_files) +
                 " per process; a coordinator with many nodes and rank 0 of a large gang need more",
             "raise the hard limit: nofile in /etc/security/limits.conf, LimitNOFILE of the unit; "
             "for this shell, as root:",
             "ulimit -n 65536");
}

Finding Processes(const MachineFacts& facts) {
  std::optional<std::uint64_t> limit = facts.processes;
  const bool group = facts.groups.processes && (!limit || *facts.groups.processes < *limit);
  if (group) limit = facts.groups.processes;
  if (!limit || *limit >= kFewProcesses)
    return Ok("processes", limit ? "at most " + std::to_string(*limit) : "no limit");
  return Bad(Verdict::kWarn, "processes",
             "at most " + std::to_string(*limit) +
                 " processes and threads; each rank has dozens, and fails to start when there are "
                 "no more",
             group ? "raise the limit of the control group: TasksMax of the systemd unit, "
                     "--pids-limit of the container"
                   : "raise the limit: nproc in /etc/security/limits.conf");
}

Finding LockedMemory(const MachineFacts& facts) {
  if (!facts.has_rdma) return Ok("locked-memory", "not needed: there is no RDMA adapter");
  if (!facts.locked_bytes) return Ok("locked-memory", "no limit");
  return Bad(Verdict::kWarn, "locked-memory",
             "at most " + HumanBytes(*facts.locked_bytes) +
                 "; RDMA registers more, and without it nodes use TCP",
             "raise the limit: memlock in /etc/security/limits.conf, LimitMEMLOCK of the unit");
}

Finding Overcommit(const MachineFacts& facts) {
  if (facts.overcommit != 2) return Ok("overcommit", "memory is given when it is used");
  return Bad(Verdict::kWarn, "overcommit",
             "the kernel refuses memory that is reserved and not used (vm.overcommit_memory = 2), "
             "and LibTorch and CUDA reserve much",
             "let the kernel give memory when it is used:", "sysctl -w vm.overcommit_memory=0");
}

Finding Maps(const MachineFacts& facts) {
  if (facts.map_count == 0 || facts.map_count >= kFewMaps)
    return Ok("memory-maps", "at most " + std::to_string(facts.map_count));
  return Bad(Verdict::kWarn, "memory-maps",
             "at most " + std::to_string(facts.map_count) +
                 " mappings per process (vm.max_map_count); a large model reaches that",
             "raise it to the kernel's default or more:", "sysctl -w vm.max_map_count=262144");
}

Finding HugePages(const MachineFacts& facts) {
  if (facts.huge_pages != "never")
    return Ok("huge-pages", facts.huge_pages.empty() ? "unknown" : facts.huge_pages);
  return Bad(Verdict::kWarn, "huge-pages",
             "the kernel makes none; first steps and snapshots in memory take longer",
             "allow them where a program asks for them:",
             "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

Finding Containers(const MachineFacts& facts) {
  const std::string cost = "; jobs with a container cannot run here, others can";
  if (VersionOf(facts.kernel) < KernelVersion{5, 12})
    return Bad(Verdict::kWarn, "containers", "Linux " + facts.kernel + " is too old" + cost,
               "the machine's administrator installs Linux 5.12 or newer");
  if (facts.namespaces_setting.empty()) return Ok("containers", "ranks can run in them");
  const std::string name = facts.namespaces_setting.substr(0, facts.namespaces_setting.find(' '));
  const std::string allowed = name == "user.max_user_namespaces"           ? "15000"
                              : name == "kernel.unprivileged_userns_clone" ? "1"
                                                                           : "0";
  return Bad(Verdict::kWarn, "containers", facts.namespaces_setting + cost,
             "allow users their own namespaces, or run the worker as root:",
             "sysctl -w " + name + "=" + allowed);
}

Finding SharedMemory(const MachineFacts& facts) {
  const DirectoryFacts& dir = facts.shared_memory;
  if (!dir.error.empty())
    return Bad(Verdict::kFail, "shared-memory",
               "nothing can be written to /dev/shm (" + dir.error +
                   "); NCCL and the data loaders of PyTorch need it",
               "mount it:", "mount -t tmpfs -o size=50% tmpfs /dev/shm");
  if (dir.free_bytes < kLittleSharedMemory)
    return Bad(Verdict::kWarn, "shared-memory",
               HumanBytes(dir.free_bytes) + " of " + HumanBytes(dir.total_bytes) +
                   " are free in /dev/shm; NCCL and the data loaders of PyTorch end with a bus "
                   "error when it is full",
               "make it larger (--shm-size of a container), or remove what is left there:",
               "mount -o remount,size=50% /dev/shm");
  return Ok("shared-memory", HumanBytes(dir.free_bytes) + " are free in /dev/shm");
}

Finding State(const MachineFacts& facts) {
  const DirectoryFacts& dir = facts.state;
  const std::string elsewhere = "export MUSTER_DIR=/var/tmp/muster-$(id -u)";
  if (!dir.error.empty())
    return Bad(Verdict::kFail, "cluster-directory",
               "nothing can be written at " + dir.path + " (" + dir.error +
                   "); a cluster keeps its store, keys and logs there",
               "choose another directory, for this shell:", elsewhere);
  if (!dir.network_file_system.empty() || !dir.locks)
    return Bad(Verdict::kWarn, "cluster-directory",
               dir.path + " is on " +
                   (dir.locks ? dir.network_file_system : "a file system without locks (flock)") +
                   "; the store of a coordinator belongs on a disk of its machine",
               "choose another directory, for this shell:", elsewhere);
  if (dir.free_bytes < kLittleState)
    return Bad(Verdict::kWarn, "cluster-directory",
               HumanBytes(dir.free_bytes) + " are free at " + dir.path +
                   "; a full disk stops the coordinator",
               "remove files, or choose another directory, for this shell:", elsewhere);
  return Ok("cluster-directory", dir.path + ", " + HumanBytes(dir.free_bytes) + " free");
}

Finding Temporary(const MachineFacts& facts) {
  const DirectoryFacts& dir = facts.temporary;
  if (dir.error.empty() && dir.free_bytes >= kLittleTemporary)
    return Ok("temporary-files", dir.path + ", " + HumanBytes(dir.free_bytes) + " free");
  return Bad(Verdict::kFail, "temporary-files",
             dir.error.empty() ? HumanBytes(dir.free_bytes) + " are free in " + dir.path
                               : "nothing can be written to " + dir.path + " (" + dir.error + ")",
             "choose another directory, for this shell:", "export TMPDIR=/var/tmp");
}

Finding ClockFinding(const MachineFacts& facts) {
  if (facts.unix_seconds < kEarliest)
    return Bad(Verdict::kFail, "clock",
               "the clock says " + IsoTime(facts.unix_seconds * 1000) +
                   "; certificates are not valid yet at that time",
               "set it, as root:", "timedatectl set-ntp true");
  if (!facts.clock_in_step)
    return Bad(
        Verdict::kWarn, "clock",
        "it follows no time server; certificates, time limits and logs of several machines "
        "need clocks that agree",
        "start a time service (chrony, systemd-timesyncd), as root:", "timedatectl set-ntp true");
  return Ok("clock", "follows a time server");
}

Finding HostName(const MachineFacts& facts) {
  if (facts.host_name_resolves) return Ok("host-name", facts.host_name + " resolves");
  return Bad(Verdict::kWarn, "host-name",
             "no address is known for this machine's own name, " + facts.host_name +
                 "; programs that look it up (Gloo, MPI) wait or fail. Muster gives ranks "
                 "addresses, not names",
             "name it in /etc/hosts, as root:",
             "echo \"127.0.1.1 " + facts.host_name + "\" >> /etc/hosts");
}

Finding NameService(const MachineFacts& facts) {
  if (facts.hub_host_resolves) return Ok("name-service", facts.hub_host + " resolves");
  return Bad(Verdict::kWarn, "name-service",
             "no address is found for " + facts.hub_host +
                 "; models and data sets cannot be fetched by name",
             "the network's administrator mends /etc/resolv.conf or the name server; until then "
             "give jobs directories and files of this machine, or HF_ENDPOINT a mirror");
}

Finding Loopback(const MachineFacts& facts) {
  if (facts.loopback_error.empty()) return Ok("loopback", "127.0.0.1 answers");
  return Bad(Verdict::kFail, "loopback",
             "127.0.0.1 is not reached (" + facts.loopback_error +
                 "); the programs of a cluster of this machine could not talk to each other",
             "take the interface up, as root of this network namespace, and let a firewall pass "
             "what it carries:",
             "ip link set lo up");
}

Finding Ports(const MachineFacts& facts) {
  const std::string range =
      std::to_string(facts.first_port) + " to " + std::to_string(facts.last_port);
  const std::string command = "sysctl -w net.ipv4.ip_local_port_range='32768 60999'";
  if (!facts.port_is_free)
    return Bad(Verdict::kFail, "ports", "no port of " + range + " is free; nothing can listen",
               "end the programs that hold them (ss -tlnp), or widen the range:", command);
  if (facts.last_port - facts.first_port + 1 < kFewPorts)
    return Bad(
        Verdict::kWarn, "ports",
        "the kernel gives out " + range + " only; each rank, worker and connection takes one",
        "widen the range:", command);
  return Ok("ports", range);
}

// A line of a shell. A packet is through when every chain at a hook has accepted it.
std::string PassNftables(const std::string& ip) {
  const std::string address = ip.substr(0, ip.find('%'));
  const std::string family = address.find(':') == std::string::npos ? "ip" : "ip6";
  return R"(nft list chains | awk '$1 == "table" {t = $2 " " $3} $1 == "chain" {c = t " " $2} )"
         "t ~ /^(inet|" +
         family + R"() / && /type filter hook (input|output)/ {print "insert rule " c " )" +
         family + R"( " (/hook input/ ? "saddr" : "daddr") " )" + address +
         R"( accept"}' | nft -f -)";
}

Finding Peer(const PeerFacts& peer) {
  if (peer.error.empty()) return Ok("peer", peer.address + " answers");
  if (!peer.is_address)
    return Bad(Verdict::kFail, "peer", peer.address + ": " + peer.error,
               "name a machine and any port of it, as in --peer node7:7777");
  if (peer.ip.empty())
    return Bad(Verdict::kFail, "peer", peer.address + ": " + peer.error,
               "name a machine that has an address, in DNS or in /etc/hosts");
  return Bad(
      Verdict::kFail, "peer",
      peer.address + ": " + peer.error +
          "; ranks of a job on both machines would not reach each other",
      "let TCP pass between the nodes, on all ports; what lies between them (ip route) is the "
      "network's administrator's. As root, this passes the peer through this machine's own "
      "firewall; on the peer, it takes this machine's address:",
      PassNftables(peer.ip));
}

Finding Programs(const MachineFacts& facts) {
  std::vector<ProgramFacts> programs = facts.programs;
  if (facts.trainer.error.empty()) programs.push_back(facts.trainer);
  for (const ProgramFacts& program : programs) {
    if (!program.error.empty())
      return Bad(Verdict::kFail, "programs", program.name + " does not start: " + program.error,
                 "install Muster again; all its programs lie in one directory");
    if (program.version != facts.own_version)
      return Bad(
          Verdict::kFail, "programs",
          program.name + " is version " + program.version + ", and muster " + facts.own_version,
          "install Muster again; all its programs lie in one directory");
  }
  if (!facts.path_muster.empty() && facts.path_muster != facts.own_path) {
    const std::string dir = facts.own_path.substr(0, facts.own_path.rfind('/'));
    return Bad(
        Verdict::kWarn, "programs",
        "the shell finds another one first: " + facts.path_muster + ", not " + facts.own_path,
        "remove one of the two, or put this one first, for this shell:",
        "export PATH=" + ShellWord(dir) + ":\"$PATH\"");
  }
  return Ok("programs", "muster " + facts.own_version);
}

Finding Trainer(const MachineFacts& facts) {
  if (facts.trainer.error.empty()) return Ok("trainer", "muster-trainer starts with its LibTorch");
  if (facts.trainer.error.find("/libmuster_trainer.so is damaged") != std::string::npos)
    return Bad(Verdict::kWarn, "trainer", facts.trainer.error,
               "install Muster again (pip install --force-reinstall, or apt install --reinstall)");
  return Bad(Verdict::kWarn, "trainer",
             "muster-trainer does not start: " + facts.trainer.error +
                 "; jobs with a train section need it, others do not",
             "install the LibTorch that it was built for:", "pip install 'torch==2.11.*'");
}

Finding Gpus(const MachineFacts& facts) {
  if (facts.nvidia_gpus == 0) return Ok("gpus", "none; jobs train on processors");
  const std::string is = std::to_string(facts.nvidia_gpus) + " of NVIDIA";
  if (facts.nvidia_driver) return Ok("gpus", is);
  return Bad(Verdict::kFail, "gpus", is + ", but no driver is loaded; jobs train on processors",
             "the machine's administrator installs NVIDIA's driver and loads it (modprobe nvidia); "
             "in a container, start it with the GPUs (--gpus all, or --device nvidia.com/gpu=all)");
}

}  // namespace

std::vector<Finding> JudgeMachine(const MachineFacts& facts) {
  std::vector<Finding> findings;
  for (const auto judge :
       {Kernel,   Memory,      Cpus,       OpenFiles,    Processes, LockedMemory, Overcommit,
        Maps,     HugePages,   Containers, SharedMemory, State,     Temporary,    ClockFinding,
        HostName, NameService, Loopback,   Ports,        Programs,  Trainer,      Gpus})
    findings.push_back(judge(facts));
  for (const PeerFacts& peer : facts.peers) findings.push_back(Peer(peer));
  return findings;
}

}  // namespace muster
