#include "worker/launcher/launcher.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <utility>

#include "common/base/files.h"
#include "common/control_pipe/packet_socket.h"
#include "worker/launcher/account.h"
#include "worker/launcher/job_place.h"
#include "worker/launcher/messages.h"
#include "worker/launcher/start.h"
#include "worker/process/cgroup.h"
#include "worker/process/unix_socket.h"

namespace muster::launcher {
namespace {

constexpr int kMaxAtOnce = 64;
constexpr unsigned kMaxSeconds = 20;  // of one request
constexpr std::chrono::seconds kReceiveWithin{5};

constexpr std::uint64_t Bit(int capability) { return std::uint64_t{1} << capability; }
// Nothing that reads or changes files of others, or signals: not DAC_OVERRIDE, FOWNER, KILL.
constexpr std::uint64_t kCapabilities =
    Bit(CAP_CHOWN) | Bit(CAP_SETGID) | Bit(CAP_SETUID) | Bit(CAP_SETPCAP) | Bit(CAP_SYS_ADMIN);

struct Node {
  const Options* options;
  uid_t worker_uid;
  gid_t worker_gid;
  UniqueFd directory;
  std::unique_ptr<Cgroup> jobs;  // below which those of jobs are
};

// Goes on in a child, for which this process waits: what has become an account the account may
// stop, and nothing that the launcher waits for may be.
void GoOnInChild() {
  const pid_t child = ::fork();
  if (child == 0) return;
  ::waitpid(child, nullptr, 0);
  ::_exit(0);
}

Status Start(const Node& node, const Request& request, const Account& account, int socket) {
  SpawnOptions program{.inherited = {{socket, kSocketFd}}};
  if (request.verb == Verb::kFiles) {
    program.argv = {node.options->files, "--serve-files", std::to_string(kSocketFd)};
    GoOnInChild();
    return StartAs(account, program, "");
  }
  const std::string directory = node.options->directory + "/" + request.job;
  const auto cgroup = MakeJobCgroup(node.jobs->path(), request.job, account);
  program.cgroup_procs_fd = cgroup->procs_fd();
  program.argv = {node.options->guardian,
                  "--dir",
                  directory + "/run",
                  "--job",
                  request.job,
                  "--worker-fd",
                  std::to_string(kSocketFd),
                  "--devices",
                  request.devices,
                  "--worker-uid",
                  std::to_string(node.worker_uid)};
  GoOnInChild();
  return StartAs(account, program, directory);
}

Status End(const Node& node, const Request& request) {
  const Status status = EndJobCgroup(node.jobs->path(), request.job);
  if (request.verb == Verb::kForget) RemoveJobDirectories(node.directory.get(), request.job);
  return status;
}

Status Do(const Node& node, const Request& request, int socket) {
  if (request.verb == Verb::kHello) return OkStatus();
  if (request.verb == Verb::kEnd || request.verb == Verb::kForget) return End(node, request);
  MUSTER_ASSIGN_OR_RETURN(const Account account, FindAccount(request.account));
  if (request.verb != Verb::kFiles)
    MUSTER_RETURN_IF_ERROR(
        MakeJobDirectories(node.directory.get(), request.job, account, node.worker_gid));
  return request.verb == Verb::kDirectory ? OkStatus() : Start(node, request, account, socket);
}

void Handle(const Node& node, PacketSocket connection) {
  ::alarm(kMaxSeconds);
  auto packet = connection.Receive(Deadline::After(kReceiveWithin));
  if (!packet.ok()) return;
  const auto request = Decode(packet->data, packet->fds.size());
  const Status status =
      request ? Do(node, *request, packet->fds.empty() ? -1 : packet->fds[0].get())
              : InvalidArgument("it refuses the request; is it of the version of muster-worker?");
  Reply reply{.code = static_cast<std::uint8_t>(status.code())};
  const std::string_view text = status.ok() ? node.options->directory : status.message();
  Put(text.substr(0, sizeof reply.text - 1), reply.text);
  (void)connection.Send({reinterpret_cast<const char*>(&reply), sizeof reply});
  if (!status.ok() && status.code() != StatusCode::kAborted)
    std::fprintf(stderr, "muster-launcher: account '%s', job '%s': %s\n",
                 request ? request->account : "", request ? request->job : "", reply.text);
}

Status MakeRootsDirectory(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(path, 0711));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != 0 ||
      (info.st_mode & 022) != 0)
    return FailedPrecondition(path + " must be a directory that root alone may change");
  return OkStatus();
}

Result<Node> SetUp(const Options& options) {
  const passwd* const user = ::getpwnam(options.worker_user.c_str());
  if (user == nullptr) return NotFound("there is no user '" + options.worker_user + "' here");
  if (user->pw_uid == 0)
    return InvalidArgument("--worker-user: a worker that runs as root needs no launcher");
  const uid_t uid = user->pw_uid;
  const gid_t gid = user->pw_gid;
  MUSTER_RETURN_IF_ERROR(MakeRootsDirectory(options.directory));
  UniqueFd directory(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return ErrnoStatus(errno, "open " + options.directory);
  return Node{&options, uid, gid, std::move(directory), MakeCgroup("muster-jobs")};
}

Result<UniqueFd> Listen(const Node& node) {
  const std::filesystem::path path(node.options->socket);
  MUSTER_ASSIGN_OR_RETURN(UniqueFd fd,
                          ListenPackets(path.parent_path().string(), path.filename().string()));
  if (::lchown(path.c_str(), node.worker_uid, static_cast<gid_t>(-1)) != 0)
    return ErrnoStatus(errno, "give " + path.string() + " to the worker's user");
  if (::fcntl(fd.get(), F_SETFL, 0) != 0) return ErrnoStatus(errno, "fcntl");
  return fd;
}

}  // namespace

Status Serve(const Options& options) {
  if (::geteuid() != 0) return PermissionDenied("muster-launcher must be started as root");
  MUSTER_ASSIGN_OR_RETURN(const Node node, SetUp(options));
  MUSTER_ASSIGN_OR_RETURN(const UniqueFd listening, Listen(node));
  if (!LimitCapabilities(kCapabilities) || !RefuseCalls())
    return ErrnoStatus(errno, "give up what is not needed of root's rights");
  for (int running = 0;;) {
    auto connection = AcceptPackets(listening.get(), node.worker_uid);
    while (running > 0 && ::waitpid(-1, nullptr, running < kMaxAtOnce ? WNOHANG : 0) > 0) --running;
    if (connection.status().code() == StatusCode::kResourceExhausted) return connection.status();
    if (!connection.ok()) {
      std::fprintf(stderr, "muster-launcher: %s\n", connection.status().message().c_str());
      continue;
    }
    const pid_t pid = ::fork();
    if (pid == 0) {
      Handle(node, std::move(*connection));
      ::_exit(0);
    }
    if (pid > 0) ++running;
  }
}

}  // namespace muster::launcher
