#include "cli/slurm/node_probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

#include "cli/slurm/clock_listener.h"
#include "common/base/file_lock.h"
#include "common/base/files.h"
#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "common/net/interfaces.h"
#include "common/process/cpu_affinity.h"

namespace muster {
namespace {

using nlohmann::json;

constexpr int kLookAgainMs = 50;
// A network file system may hide a new file until this node writes one beside it.
constexpr Duration kWriteAgain = std::chrono::seconds(1);
constexpr Duration kAskLimit = std::chrono::seconds(2);
// Each node asks at most 16 that follow it, which still shows a firewall between groups of nodes.
constexpr int kMostAsked = 16;
constexpr int kMostDevices = 64;

int OpenableDevices() {
  int count = 0;
  for (int i = 0; i < kMostDevices; ++i) {
    const UniqueFd fd(::open(("/dev/nvidia" + std::to_string(i)).c_str(), O_RDWR | O_CLOEXEC));
    count += fd.valid() ? 1 : 0;
  }
  return count;
}

// 0 for a directory that is not writable.
std::int64_t FreeMib(const std::string& dir) {
  struct statvfs stat {};
  if (::access(dir.c_str(), W_OK) != 0 || ::statvfs(dir.c_str(), &stat) != 0) return 0;
  return static_cast<std::int64_t>(stat.f_bavail) * static_cast<std::int64_t>(stat.f_frsize) >> 20;
}

class Probe {
 public:
  Probe(const slurm::Allocation& allocation, const ProbeOptions& options)
      : allocation_(allocation), options_(options) {}

  slurm::NodeProbe Run() {
    LookAtOneself();
    const Status met = Meet();
    if (!met.ok()) result_.shared_error = met.message();
    return std::move(result_);
  }

 private:
  void LookAtOneself() {
    result_.node = allocation_.node_name;
    result_.step = allocation_.nodes;
    result_.slurm_gpus = allocation_.gpus_on_node;
    if (allocation_.visible_gpus)
      result_.visible_gpus = static_cast<int>(allocation_.visible_gpus->size());
    result_.device_files = OpenableDevices();
    result_.slurm_cpus = allocation_.cpus_on_node;
    result_.usable_cpus = static_cast<int>(AllowedCpus().size());
    result_.temporary = allocation_.tmp_dir;
    result_.temporary_free_mib = FreeMib(allocation_.tmp_dir);
  }

  Result<std::unique_ptr<ClockListener>> OpenChannel() const {
    InterfaceChoice choice;
    if (!options_.interface.empty()) {
      MUSTER_ASSIGN_OR_RETURN(choice, InterfaceChoice::Parse(options_.interface));
    }
    MUSTER_ASSIGN_OR_RETURN(
        const std::string host,
        OwnAddress(choice, allocation_.launch_address.empty() ? allocation_.comm_host
                                                              : allocation_.launch_address));
    return ClockListener::Open(host);
  }

  // An error is one of the shared directory.
  Status Meet() {
    auto listener = OpenChannel();
    // Without a listener no node can reach this one; the others see that by its empty address.
    if (listener.ok()) result_.address = (*listener)->address();
    const std::string own = json{{"address", result_.address}}.dump();
    const auto write = [this, &own] {
      return WriteFileAtomically(FileOf(allocation_.node_id, ".json"), own + "\n", 0600);
    };
    MUSTER_RETURN_IF_ERROR(write());
    MUSTER_RETURN_IF_ERROR(AwaitAll(write, [this](int index) { return ObservePeer(index); }));
    for (int index = 0; index < allocation_.node_count(); ++index)
      if (peers_.count(index) == 0) result_.unseen.push_back(NameOf(index));
    MUSTER_RETURN_IF_ERROR(TryToBeTheOne());
    AskOthers();
    // Waits until the others have asked this node too.
    const auto done = [this] {
      return WriteFileAtomically(FileOf(allocation_.node_id, ".done"), "\n", 0600);
    };
    MUSTER_RETURN_IF_ERROR(done());
    return AwaitAll(done, [this](int index) {
      return peers_.count(index) == 0 || ::access(FileOf(index, ".done").c_str(), F_OK) == 0;
    });
  }

  // Waits until `seen` is true for every node, or the time is over.
  template <typename Write, typename Seen>
  Status AwaitAll(const Write& write, const Seen& seen) {
    const Deadline deadline = Deadline::After(options_.timeout);
    TimePoint write_again = SystemClock().Now() + kWriteAgain;
    for (;;) {
      bool all = true;
      for (int index = 0; index < allocation_.node_count(); ++index) all = seen(index) && all;
      if (all || deadline.Expired()) return OkStatus();
      (void)::poll(nullptr, 0, kLookAgainMs);
      if (SystemClock().Now() < write_again) continue;
      MUSTER_RETURN_IF_ERROR(write());
      write_again = SystemClock().Now() + kWriteAgain;
    }
  }

  bool ObservePeer(int index) {
    if (peers_.count(index) != 0) return true;
    const auto text = ReadFile(FileOf(index, ".json"));
    if (!text.ok()) return false;
    const json peer = json::parse(*text, nullptr, /*allow_exceptions=*/false);
    if (!peer.is_object() || !peer.contains("address") || !peer.at("address").is_string())
      return false;
    peers_[index] = peer.at("address").get<std::string>();
    return true;
  }

  Status TryToBeTheOne() {
    const std::string exclusive = options_.dir + "/exclusive";
    const UniqueFd fd(::open(exclusive.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd.valid() && errno != EEXIST) return ErrnoStatus(errno, "make " + exclusive);
    result_.made_exclusive_file = fd.valid();
    const std::string link = options_.dir + "/link";
    result_.made_link = ::link(FileOf(allocation_.node_id, ".json").c_str(), link.c_str()) == 0;
    if (!result_.made_link && errno != EEXIST) return ErrnoStatus(errno, "link " + link);
    return TakeLock();
  }

  // As each supervisor does for its certificates, and a submit.
  Status TakeLock() const {
    const std::string path = options_.dir + "/lock";
    const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
    const auto locked = LockFile(fd.get(), options_.timeout);
    if (!locked.ok())
      return locked.status().WithContext("cannot lock " + path +
                                         ", which needs a file system that is mounted with flock");
    if (!*locked) return Aborted("the lock of " + path + " never became free");
    return OkStatus();
  }

  void AskOthers() {
    const int count = allocation_.node_count();
    for (int i = 1; i <= std::min(kMostAsked, count - 1); ++i) {
      const int index = (allocation_.node_id + i) % count;
      const auto peer = peers_.find(index);
      if (peer == peers_.end()) continue;
      const auto offset = peer->second.empty()
                              ? Result<std::int64_t>(Unavailable("it has no address"))
                              : AskClock(peer->second, kAskLimit);
      if (offset.ok())
        result_.clock_offset[NameOf(index)] = *offset;
      else
        result_.unreachable.push_back(NameOf(index));
    }
  }

  std::string FileOf(int index, const char* suffix) const {
    return options_.dir + "/" + std::to_string(index) + suffix;
  }
  const std::string& NameOf(int index) const {
    return allocation_.nodes[static_cast<std::size_t>(index)];
  }

  const slurm::Allocation& allocation_;
  const ProbeOptions& options_;
  slurm::NodeProbe result_;
  std::map<int, std::string> peers_;  // addresses of those that were seen, this node among them
};

}  // namespace

slurm::NodeProbe ProbeNode(const slurm::Allocation& allocation, const ProbeOptions& options) {
  return Probe(allocation, options).Run();
}

}  // namespace muster
