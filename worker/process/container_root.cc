#include "worker/process/container_root.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdint>
#include <filesystem>

#include "common/base/json.h"
#include "common/base/unique_fd.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// Constants of linux/mount.h, which conflicts with sys/mount.h.
constexpr unsigned kOpenTreeClone = 1;
constexpr unsigned kRecursive = 0x8000;
constexpr unsigned kMoveByDescriptors = 0x4 | 0x40;  // MOVE_MOUNT_F_EMPTY_PATH, _T_EMPTY_PATH
struct MountAttributes {
  std::uint64_t set = 0, clear = 0, propagation = 0, user_namespace = 0;
};
constexpr std::uint64_t kReadOnly = 1;  // MOUNT_ATTR_RDONLY

// Names below the scratch directory; layers have their numbers.
constexpr char kUpper[] = "upper";
constexpr char kWork[] = "work";
constexpr char kEmpty[] = "empty";
constexpr char kRoot[] = "root";

Status WriteText(const char* path, const std::string& text) {
  const UniqueFd fd(::open(path, O_WRONLY | O_CLOEXEC));
  if (!fd.valid() || ::write(fd.get(), text.data(), text.size()) < 0)
    return ErrnoStatus(errno, std::string("write ") + path);
  return OkStatus();
}

// Whether it took a user namespace, in which the process has its own user and group alone.
Result<bool> UnshareMounts() {
  if (::unshare(CLONE_NEWNS) == 0) return false;
  const std::string user = std::to_string(::geteuid()), group = std::to_string(::getegid());
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
    return ErrnoStatus(errno,
                       "this node lets its worker's user make no namespaces: its administrator "
                       "allows that (user.max_user_namespaces, "
                       "kernel.apparmor_restrict_unprivileged_userns) or runs the worker as root");
  MUSTER_RETURN_IF_ERROR(WriteText("/proc/self/setgroups", "deny"));
  MUSTER_RETURN_IF_ERROR(WriteText("/proc/self/uid_map", user + " " + user + " 1"));
  MUSTER_RETURN_IF_ERROR(WriteText("/proc/self/gid_map", group + " " + group + " 1"));
  return true;
}

bool IsDirectory(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISDIR(info.st_mode);
}

// A copy of the source's mounts that is attached nowhere.
Result<UniqueFd> CopySource(const RootMount& mount) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, mount.source.c_str(),
                                         kOpenTreeClone | kRecursive | O_CLOEXEC)));
  if (!fd.valid() && (errno == ENOENT || errno == ENOTDIR))
    return NotFound("container.mounts: there is no " + mount.source + " on this node");
  if (!fd.valid()) return ErrnoStatus(errno, "container.mounts: mount " + mount.source);
  MountAttributes attributes{.set = kReadOnly};
  if (mount.read_only && ::syscall(SYS_mount_setattr, fd.get(), "", AT_EMPTY_PATH | kRecursive,
                                   &attributes, sizeof attributes) != 0)
    return ErrnoStatus(errno, "container.mounts: make " + mount.source + " read-only");
  return fd;
}

Status MakeOne(int folder, const std::string& name, bool directory, mode_t mode = 0755) {
  if (directory) {
    if (::mkdirat(folder, name.c_str(), mode) == 0 || errno == EEXIST) return OkStatus();
  } else if (UniqueFd(::openat(folder, name.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644))
                 .valid()) {
    return OkStatus();
  }
  return ErrnoStatus(errno, "make " + name);
}

// Makes `target` in the upper layer, at the place to which the image's own symbolic links lead: so
// also in directories of the image that this user may not write. The image, without the upper
// layer, is the process's root; `descriptors` is its directory of them in /proc.
Status MakeInUpper(int upper, int descriptors, const std::string& target, bool directory) {
  fs::path head = target, rest;
  UniqueFd found;
  for (;; head = head.parent_path()) {
    found.reset(::open(head.c_str(), O_PATH | O_CLOEXEC));
    if (found.valid()) break;
    if (errno != ENOENT)
      return ErrnoStatus(errno, "container.mounts: the image has no place for " + target);
    rest = rest.empty() ? head.filename() : head.filename() / rest;
  }
  if (rest.empty()) return OkStatus();
  char place[PATH_MAX];
  const ssize_t length =
      ::readlinkat(descriptors, std::to_string(found.get()).c_str(), place, sizeof place);
  if (length <= 0) return ErrnoStatus(errno, "read /proc/self/fd");
  const std::string existing(place, static_cast<std::size_t>(length));
  fs::path made;
  for (const fs::path& name : fs::path(existing).relative_path() / rest) {
    made /= name;
    struct stat info {};
    const bool exists = ::lstat(("/" + made.string()).c_str(), &info) == 0;
    const bool last = "/" / made == existing / rest;
    MUSTER_RETURN_IF_ERROR(MakeOne(upper, made.string(), directory || !last,
                                   exists ? (info.st_mode & 01777) | 0700 : 0755));
  }
  return OkStatus();
}

Status MountOverlay(const std::string& options) {
  if (::mount("muster", kRoot, "overlay", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return ErrnoStatus(errno, "container.image: mount its layers as an overlay");
  return OkStatus();
}

struct Source {
  const RootMount* mount;
  UniqueFd copy;
};

// The mount points and directories that the image at kRoot lacks.
Status MakePlaces(const ContainerRoot& root, const std::vector<Source>& sources) {
  constexpr int kFolder = O_DIRECTORY | O_CLOEXEC;
  const UniqueFd upper(::open(kUpper, kFolder)), descriptors(::open("/proc/self/fd", kFolder)),
      outside(::open("/", kFolder));
  if (::chroot(kRoot) != 0 || ::chdir("/") != 0) return ErrnoStatus(errno, "look at the image");
  for (const Source& source : sources)
    MUSTER_RETURN_IF_ERROR(MakeInUpper(upper.get(), descriptors.get(), source.mount->target,
                                       IsDirectory(source.copy.get())));
  for (const std::string& directory : root.directories)
    MUSTER_RETURN_IF_ERROR(MakeInUpper(upper.get(), descriptors.get(), directory, true));
  if (::fchdir(outside.get()) != 0 || ::chroot(".") != 0 || ::chdir(root.scratch.c_str()) != 0)
    return ErrnoStatus(errno, "leave the image");
  return OkStatus();
}

// In the scratch directory. Leaves the overlay at kRoot.
Status MakeOverlay(const ContainerRoot& root, const std::vector<Source>& sources, bool own_users) {
  for (const char* name : {kUpper, kWork, kEmpty, kRoot})
    if (::mkdir(name, 0755) != 0) return ErrnoStatus(errno, std::string("make ") + name);
  // A page holds all options, and paths may contain colons.
  std::string lower;
  for (const std::string& layer : root.layers) {
    const std::string name = std::to_string(&layer - root.layers.data());
    if (::symlink(layer.c_str(), name.c_str()) != 0) return ErrnoStatus(errno, "link a layer");
    lower += (lower.empty() ? "" : ":") + name;
  }
  // Where the user may not mount by himself, podman marks directories so.
  const std::string marks = own_users ? ",userxattr" : "";
  MUSTER_RETURN_IF_ERROR(MountOverlay("lowerdir=" + lower + ":" + kEmpty + marks));
  MUSTER_RETURN_IF_ERROR(MakePlaces(root, sources));
  if (::umount2(kRoot, MNT_DETACH) != 0) return ErrnoStatus(errno, "unmount the image");
  return MountOverlay("lowerdir=" + lower + ",upperdir=" + kUpper + ",workdir=" + kWork + marks);
}

// Opens a mount point, and makes it where a directory of the node that is mounted there lacks it.
Result<UniqueFd> OpenTarget(const fs::path& target, bool directory) {
  UniqueFd fd(::open(target.c_str(), O_PATH | O_CLOEXEC));
  if (fd.valid()) return fd;
  const std::string what = "container.mounts: make the mount point " + target.string();
  if (errno != ENOENT || target == "/") return ErrnoStatus(errno, what);
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd parent, OpenTarget(target.parent_path(), true));
  if (Status status = MakeOne(parent.get(), target.filename().string(), directory); !status.ok())
    return status.WithContext(what);
  fd.reset(::open(target.c_str(), O_PATH | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, what);
  return fd;
}

Status Attach(const Source& source) {
  const bool directory = IsDirectory(source.copy.get());
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd at, OpenTarget(source.mount->target, directory));
  if (::syscall(SYS_move_mount, source.copy.get(), "", at.get(), "", kMoveByDescriptors) == 0)
    return OkStatus();
  return ErrnoStatus(
      errno, "container.mounts: mount " + source.mount->source + " at " + source.mount->target);
}

}  // namespace

std::string EncodeContainerRoot(const ContainerRoot& root) {
  Json mounts = Json::array();
  for (const RootMount& mount : root.mounts)
    mounts.push_back({{"source", mount.source},
                      {"target", mount.target},
                      {"read_only", mount.read_only},
                      {"optional", mount.optional}});
  const Json json = {{"layers", root.layers},
                     {"mounts", mounts},
                     {"directories", root.directories},
                     {"environment", root.environment},
                     {"library_path", root.library_path},
                     {"working_directory", root.working_directory},
                     {"scratch", root.scratch}};
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<ContainerRoot> DecodeContainerRoot(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    ContainerRoot root{.layers = json.at("layers"),
                       .mounts = {},
                       .directories = json.at("directories"),
                       .environment = json.at("environment"),
                       .library_path = json.at("library_path"),
                       .working_directory = json.at("working_directory"),
                       .scratch = json.at("scratch")};
    for (const Json& mount : json.at("mounts"))
      root.mounts.push_back({.source = mount.at("source"),
                             .target = mount.at("target"),
                             .read_only = mount.at("read_only"),
                             .optional = mount.at("optional")});
    return root;
  } catch (const Json::exception& error) {
    return DataLoss(std::string("is no description of a container: ") + error.what());
  }
}

Status EnterContainer(const ContainerRoot& root) {
  if (root.layers.empty()) return InvalidArgument("container.image: it has no layers");
  MUSTER_ASSIGN_OR_RETURN(const bool own_users, UnshareMounts());
  // What the node mounts later is seen, and nothing of this leaves the namespace.
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0)
    return ErrnoStatus(errno, "take the mounts of the container apart from the node's");
  std::vector<Source> sources;
  for (const RootMount& mount : root.mounts) {
    auto copy = CopySource(mount);
    if (!copy.ok() && !mount.optional) return copy.status();
    if (copy.ok()) sources.push_back({&mount, std::move(*copy)});
  }
  if (::mount("muster", root.scratch.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") != 0 ||
      ::chdir(root.scratch.c_str()) != 0)
    return ErrnoStatus(errno, "mount memory at " + root.scratch);
  MUSTER_RETURN_IF_ERROR(MakeOverlay(root, sources, own_users));
  // The old root comes to lie over the new one, and goes.
  if (::chdir(kRoot) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
      ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0)
    return ErrnoStatus(errno, "make the container's root that of the process");
  for (const Source& source : sources) MUSTER_RETURN_IF_ERROR(Attach(source));
  return OkStatus();
}

}  // namespace muster
