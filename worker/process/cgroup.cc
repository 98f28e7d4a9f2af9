#include "worker/process/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "common/base/files.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

Status WriteControl(const std::string& path, const std::string& text) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  if (::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return ErrnoStatus(errno, "write " + path);
  return OkStatus();
}

class NoopCgroup : public Cgroup {
 public:
  int procs_fd() const override { return -1; }
  const std::string& path() const override { return path_; }
  Status KillAll() override { return OkStatus(); }
  Status LimitMemory(std::uint64_t bytes) override {
    if (bytes == 0) return OkStatus();
    return FailedPrecondition("no cgroup v2 of its own can be made here");
  }
  Status Remove() override { return OkStatus(); }

 private:
  const std::string path_;
};

class SysfsCgroup : public Cgroup {
 public:
  SysfsCgroup(std::string path, UniqueFd procs)
      : path_(std::move(path)), procs_(std::move(procs)) {}
  ~SysfsCgroup() override { ::rmdir(path_.c_str()); }
  int procs_fd() const override { return procs_.get(); }
  const std::string& path() const override { return path_; }
  Status KillAll() override { return WriteControl(path_ + "/cgroup.kill", "1"); }
  Status LimitMemory(std::uint64_t bytes) override {
    const std::string limit = path_ + "/memory.max";
    if (::access(limit.c_str(), W_OK) != 0)
      return bytes == 0 ? OkStatus()
                        : FailedPrecondition("the memory controller is not passed on to " + path_);
    const std::string swap = path_ + "/memory.swap.max";
    if (::access(swap.c_str(), W_OK) == 0)
      MUSTER_RETURN_IF_ERROR(WriteControl(swap, bytes == 0 ? "max" : "0"));
    return WriteControl(limit, bytes == 0 ? "max" : std::to_string(bytes));
  }
  Status Remove() override {
    if (::rmdir(path_.c_str()) == 0 || errno == ENOENT) return OkStatus();
    return ErrnoStatus(errno, "remove cgroup " + path_);
  }

 private:
  const std::string path_;
  UniqueFd procs_;
};

}  // namespace

std::unique_ptr<Cgroup> MakeNoopCgroup() { return std::make_unique<NoopCgroup>(); }

std::string ReadOwnCgroupDirectory() {
  const auto mounts = ReadFile("/proc/self/mountinfo");
  const auto groups = ReadFile("/proc/self/cgroup");
  return mounts.ok() && groups.ok() ? OwnCgroupDirectory(*mounts, *groups) : std::string();
}

std::string OwnCgroupDirectory(const std::string& mountinfo, const std::string& cgroup) {
  std::string mount;
  std::istringstream mounts(mountinfo);
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t separator = line.find(" - cgroup2 ");
    if (separator == std::string::npos) continue;
    std::istringstream fields(line);
    std::string id, parent, device, root;
    fields >> id >> parent >> device >> root >> mount;
    // A bind mount of a subtree shows other paths than /proc/self/cgroup does.
    if (root != "/") mount.clear();
    if (!mount.empty()) break;
  }
  std::istringstream groups(cgroup);
  for (std::string line; std::getline(groups, line);) {
    if (mount.empty() || !line.starts_with("0::/")) continue;
    const std::string own = line.substr(3);
    if (own.find("/..") != std::string::npos) return {};
    return own == "/" ? mount : mount + own;
  }
  return {};
}

std::string FindMemoryEvents(std::string path) {
  if (path.empty()) path = ReadOwnCgroupDirectory();
  while (!path.empty() && path != "/") {
    const std::string events = path + "/memory.events";
    if (::access(events.c_str(), R_OK) == 0) return events;
    path.erase(path.rfind('/'));
  }
  return {};
}

std::uint64_t MemoryLimit(std::string path) {
  if (path.empty()) path = ReadOwnCgroupDirectory();
  std::uint64_t least = 0;
  for (; !path.empty() && path != "/"; path.erase(path.rfind('/'))) {
    std::uint64_t limit = 0;  // stays where it is "max"
    const auto text = ReadFile(path + "/memory.max");
    if (text.ok()) std::istringstream(*text) >> limit;
    if (limit > 0) least = least == 0 ? limit : std::min(least, limit);
  }
  return least;
}

std::int64_t ReadOomKills(const std::string& memory_events) {
  const auto text = ReadFile(memory_events);
  if (!text.ok()) return 0;
  std::istringstream lines(*text);
  std::string name;
  for (std::int64_t count = 0; lines >> name >> count;)
    if (name == "oom_kill") return count;
  return 0;
}

std::unique_ptr<Cgroup> MakeCgroup(const std::string& name, std::string own) {
  if (own.empty()) return MakeNoopCgroup();
  if (own.ends_with(std::string("/") + kDaemonsCgroup)) own.erase(own.rfind('/'));
  // Refused, for one, while processes are in it.
  (void)WriteControl(own + "/cgroup.subtree_control", "+memory");
  const std::string path = own + "/" + name;
  if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) return MakeNoopCgroup();
  UniqueFd procs(::open((path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
  const bool killable = ::access((path + "/cgroup.kill").c_str(), W_OK) == 0;
  // Only joining proves that a child may join: a user may own the directory and yet be refused.
  if (!procs.valid() || !killable) {
    ::rmdir(path.c_str());
    return MakeNoopCgroup();
  }
  return std::make_unique<SysfsCgroup>(path, std::move(procs));
}

Status EndAbandonedCgroup(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return OkStatus();
  MUSTER_RETURN_IF_ERROR(WriteControl(path + "/cgroup.kill", "1"));
  if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return OkStatus();
  return ErrnoStatus(errno, "remove cgroup " + path);
}

}  // namespace muster
