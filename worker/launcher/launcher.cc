#include "worker/launcher/launcher.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "common/base/files.h"
#include "common/base/proc_reader.h"
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
// Nothing that reads or changes files of others: not DAC_OVERRIDE, not FOWNER.
constexpr std::uint64_t kCapabilities = Bit(CAP_CHOWN) | Bit(CAP_KILL) | Bit(CAP_SETGID) |
                                        Bit(CAP_SETUID) | Bit(CAP_SETPCAP) | Bit(CAP_SYS_ADMIN);

struct Node {
  const Options* options;
  uid_t worker_uid;
  gid_t worker_gid;
  UniqueFd directory;
  std::string cgroup;  // below which those of jobs are; empty: none can be made
};

// All four ids: a process that has changed some is not the account's alone.
bool IsOf(pid_t pid, uid_t uid) {
  const auto status = ReadFile("/proc/" + std::to_string(pid) + "/status", 1 << 16);
  const std::size_t at = status.ok() ? status->find("\nUid:") : std::string::npos;
  unsigned ids[4] = {};
  return at != std::string::npos &&
         std::sscanf(status->c_str() + at, "\nUid: %u %u %u %u", &ids[0], &ids[1], &ids[2],
                     &ids[3]) == 4 &&
         ids[0] == uid && ids[1] == uid && ids[2] == uid && ids[3] == uid;
}

Reply End(const Node& node, const Request& request, const Account& account) {
  Reply reply{.pid = request.pid, .uid = account.uid};
  const UniqueFd process(
      request.pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, request.pid, 0)) : -1);
  // The descriptor pins it, so what is read now is of the process that gets the signal.
  if (process.valid()) {
    const auto info = ReadProcess(request.pid);
    if (info.ok() && info->start_time == request.start_time) {
      if (!IsOf(request.pid, account.uid)) {
        reply.reason = Reason::kForeignProcess;
        return reply;
      }
      ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
    }
  }
  if (!EndJobCgroup(node.cgroup, request.job)) reply.reason = Reason::kStillEnding;
  return reply;
}

Reply StartGuardian(const Node& node, const Request& request, const Account& account, int socket) {
  const UniqueFd procs = MakeJobCgroup(node.cgroup, request.job, account);
  const std::string directory = node.options->directory + "/" + request.job;
  Reply reply;
  StartAs({.account = &account,
           .argv = {node.options->guardian, "--dir", directory + "/run", "--job", request.job,
                    "--worker-fd", std::to_string(kSocketFd), "--devices", request.devices,
                    "--worker-uid", std::to_string(node.worker_uid)},
           .socket = socket,
           .directory = directory,
           .cgroup_procs = procs.get()},
          &reply);
  return reply;
}

Reply Answer(const Node& node, const Request& request, int socket) {
  if (request.verb == Verb::kHello) {
    Reply reply;
    Put(node.options->directory, reply.detail);
    return reply;
  }
  Account account;
  Reply reply;
  reply.reason = FindAccount(request.account, &account, &reply.error);
  if (reply.reason != Reason::kDone) {
    Put("look the account up", reply.detail);
    return reply;
  }
  reply.uid = account.uid;
  if (request.verb == Verb::kEnd) return End(node, request, account);
  if (request.verb == Verb::kForget) {
    if (!EndJobCgroup(node.cgroup, request.job)) reply.reason = Reason::kStillEnding;
    RemoveJobDirectories(node.directory.get(), request.job);
    return reply;
  }
  if (request.verb == Verb::kFiles) {
    StartAs({.account = &account,
             .argv = {node.options->files, "--serve-files", std::to_string(kSocketFd)},
             .socket = socket,
             .directory = {}},
            &reply);
    return reply;
  }
  if (!MakeJobDirectories(node.directory.get(), request.job, account, node.worker_gid)) {
    reply = {.reason = Reason::kFailed, .error = errno};
    Put("make the job's directories", reply.detail);
    return reply;
  }
  return request.verb == Verb::kGuardian ? StartGuardian(node, request, account, socket) : reply;
}

void Handle(const Node& node, PacketSocket connection) {
  ::alarm(kMaxSeconds);
  auto packet = connection.Receive(Deadline::After(kReceiveWithin));
  if (!packet.ok()) return;
  Request request;
  Reply reply{.reason = Reason::kBadRequest};
  if (Decode(packet->data, packet->fds.size(), &request))
    reply = Answer(node, request, packet->fds.empty() ? -1 : packet->fds[0].get());
  (void)connection.Send({reinterpret_cast<const char*>(&reply), sizeof reply});
  if (reply.reason == Reason::kDone || reply.reason == Reason::kStillEnding) return;
  std::fprintf(stderr, "muster-launcher: refused %d for account '%s', job '%s': %d, %s: %s\n",
               static_cast<int>(request.verb), request.account, request.job,
               static_cast<int>(reply.reason), reply.detail, std::strerror(reply.error));
}

Status MakeRootsDirectory(const std::string& path) {
  MUSTER_RETURN_IF_ERROR(MakeDirectories(path, 0711));
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != 0 ||
      (info.st_mode & 022) != 0)
    return FailedPrecondition(path + " must be a directory that root alone may change");
  if (!IsOfEachJob(path)) return OkStatus();
  return InvalidArgument("jobs have /tmp, /var/tmp and /dev/shm of their own, and would not see " +
                         path);
}

void PassMemoryOn(const std::string& cgroup) {
  const UniqueFd control(
      ::open((cgroup + "/cgroup.subtree_control").c_str(), O_WRONLY | O_CLOEXEC));
  // Refused while processes are in it, and then memory is accounted, not limited.
  if (control.valid()) (void)!::write(control.get(), "+memory", 7);
}

// Made with all of root's rights: the root of a hierarchy has no write permission.
std::string MakeCgroupOfJobs() {
  std::string own = ReadOwnCgroupDirectory();
  if (own.ends_with(std::string("/") + kDaemonsCgroup)) own.erase(own.rfind('/'));
  const std::string jobs = own + "/muster-jobs";
  if (own.empty() || (::mkdir(jobs.c_str(), 0755) != 0 && errno != EEXIST)) return "";
  PassMemoryOn(own);
  PassMemoryOn(jobs);
  return jobs;
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
  return Node{&options, uid, gid, std::move(directory), MakeCgroupOfJobs()};
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
