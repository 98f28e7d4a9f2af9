#include "worker/launcher/client.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "worker/process/unix_socket.h"

namespace muster {
namespace {

using launcher::Reason;
using launcher::Reply;
using launcher::Request;
using launcher::Verb;

// Longer than the launcher works on one request.
constexpr std::chrono::seconds kAnswerWithin{25};

Result<Request> MakeRequest(Verb verb, const std::string& account, const std::string& job) {
  Request request;
  request.verb = verb;
  if (launcher::Put(account, request.account) && launcher::Put(job, request.job)) return request;
  return InvalidArgument("the name of the account or job is too long");
}

Result<Reply> Ask(const std::string& socket, const Request& request, int descriptor = -1) {
  const std::filesystem::path path(socket);
  auto connection = ConnectPackets(path.parent_path().string(), path.filename().string());
  if (!connection.ok()) return connection.status().WithContext("muster-launcher");
  const std::vector<int> descriptors =
      descriptor >= 0 ? std::vector<int>{descriptor} : std::vector<int>{};
  MUSTER_RETURN_IF_ERROR(connection->Send({reinterpret_cast<const char*>(&request), sizeof request},
                                          descriptors, Deadline::After(kAnswerWithin)));
  auto answer = connection->Receive(Deadline::After(kAnswerWithin));
  if (!answer.ok()) return answer.status().WithContext("muster-launcher");
  Reply reply;
  if (!launcher::DecodeReply(answer->data, &reply))
    return FailedPrecondition("muster-launcher is of another version than this worker");
  return reply;
}

Status Order(const std::string& socket, const Result<Request>& request, int descriptor = -1) {
  if (!request.ok()) return request.status();
  MUSTER_ASSIGN_OR_RETURN(const Reply reply, Ask(socket, *request, descriptor));
  return launcher::StatusOf(reply, request->account);
}

}  // namespace

namespace launcher {

bool DecodeReply(std::string_view bytes, Reply* reply) {
  Reply read;
  if (bytes.size() != sizeof read) return false;
  std::memcpy(&read, bytes.data(), sizeof read);
  if (read.version != kVersion || read.reason > Reason::kFailed) return false;
  read.detail[sizeof read.detail - 1] = 0;
  *reply = read;
  return true;
}

Status StatusOf(const Reply& reply, const std::string& account) {
  switch (reply.reason) {
    case Reason::kDone: return OkStatus();
    case Reason::kBadRequest:
      return FailedPrecondition(
          "muster-launcher refuses the request; are it and muster-worker of one version?");
    case Reason::kNoAccount: return NotFound("this node has no account '" + account + "'");
    case Reason::kSystemAccount:
      return FailedPrecondition("the account '" + account +
                                "' is one of the system's here: its uid or gid is below " +
                                std::to_string(kFirstId));
    case Reason::kForeignProcess:
      return PermissionDenied("process " + std::to_string(reply.pid) + " is not of the account '" +
                              account + "'");
    case Reason::kStillEnding: return Aborted("processes of the job still end");
    case Reason::kFailed: break;
  }
  return ErrnoStatus(reply.error,
                     "muster-launcher, for the account '" + account + "': " + reply.detail);
}

}  // namespace launcher

Result<std::string> Launcher::Hello() const {
  MUSTER_ASSIGN_OR_RETURN(const Reply reply, Ask(socket_, Request{}));
  MUSTER_RETURN_IF_ERROR(launcher::StatusOf(reply, ""));
  return std::string(reply.detail);
}

Status Launcher::MakeDirectory(const std::string& account, const std::string& job) const {
  return Order(socket_, MakeRequest(Verb::kDirectory, account, job));
}

Status Launcher::StartGuardian(const std::string& account, const std::string& job,
                               const std::string& devices, int socket) const {
  auto request = MakeRequest(Verb::kGuardian, account, job);
  if (request.ok() && !launcher::Put(devices, request->devices))
    return InvalidArgument("--device-locks: the path is too long");
  return Order(socket_, request, socket);
}

Status Launcher::StartFiles(const std::string& account, int socket) const {
  return Order(socket_, MakeRequest(Verb::kFiles, account, ""), socket);
}

Status Launcher::End(const std::string& account, const std::string& job,
                     std::optional<ProcessId> process) const {
  auto request = MakeRequest(Verb::kEnd, account, job);
  if (request.ok() && process) {
    request->pid = process->pid;
    request->start_time = process->start_time;
  }
  return Order(socket_, request);
}

Status Launcher::Forget(const std::string& account, const std::string& job) const {
  return Order(socket_, MakeRequest(Verb::kForget, account, job));
}

}  // namespace muster
