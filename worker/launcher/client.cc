#include "worker/launcher/client.h"

#include <cstring>
#include <filesystem>
#include <vector>

#include "worker/process/unix_socket.h"

namespace muster {
namespace {

using launcher::Request;
using launcher::Verb;

// Longer than the launcher works on one request.
constexpr std::chrono::seconds kAnswerWithin{25};

Result<std::string> Ask(const std::string& socket, const Request& request, int descriptor = -1) {
  const std::filesystem::path path(socket);
  auto connection = ConnectPackets(path.parent_path().string(), path.filename().string());
  if (!connection.ok()) return connection.status().WithContext("muster-launcher");
  const std::vector<int> descriptors =
      descriptor >= 0 ? std::vector<int>{descriptor} : std::vector<int>{};
  MUSTER_RETURN_IF_ERROR(connection->Send({reinterpret_cast<const char*>(&request), sizeof request},
                                          descriptors, Deadline::After(kAnswerWithin)));
  auto answer = connection->Receive(Deadline::After(kAnswerWithin));
  if (!answer.ok()) return answer.status().WithContext("muster-launcher");
  return launcher::ReadReply(answer->data);
}

Status Order(const std::string& socket, Verb verb, const std::string& account,
             const std::string& job, int descriptor = -1, const std::string& devices = "") {
  Request request;
  request.verb = verb;
  if (!launcher::Put(account, request.account) || !launcher::Put(job, request.job))
    return InvalidArgument("the name of the account or job is too long");
  if (!launcher::Put(devices, request.devices))
    return InvalidArgument("--device-locks: the path is too long");
  return Ask(socket, request, descriptor).status();
}

}  // namespace

namespace launcher {

Result<std::string> ReadReply(std::string_view bytes) {
  Reply reply;
  const bool whole = bytes.size() == sizeof reply;
  if (whole) std::memcpy(&reply, bytes.data(), sizeof reply);
  if (!whole || reply.version != kVersion ||
      reply.code > static_cast<std::uint8_t>(StatusCode::kUnauthenticated))
    return FailedPrecondition("muster-launcher is of another version than this worker");
  std::string text(reply.text, ::strnlen(reply.text, sizeof reply.text));
  if (reply.code == 0) return text;
  return Status(static_cast<StatusCode>(reply.code), "muster-launcher: " + text);
}

bool IsOfEachJob(std::string_view path) {
  for (const std::string_view shared : {"/tmp", "/var/tmp", "/dev/shm"})
    if (path.starts_with(shared) && (path.size() == shared.size() || path[shared.size()] == '/'))
      return true;
  return false;
}

}  // namespace launcher

Result<std::string> Launcher::Hello() const {
  MUSTER_ASSIGN_OR_RETURN(std::string directory, Ask(socket_, Request{}));
  if (!launcher::IsOfEachJob(directory)) return directory;
  return InvalidArgument(
      "muster-launcher: --dir: jobs have /tmp, /var/tmp and /dev/shm of their "
      "own, and would not see " +
      directory);
}

Status Launcher::MakeDirectory(const std::string& account, const std::string& job) const {
  return Order(socket_, Verb::kDirectory, account, job);
}

Status Launcher::StartGuardian(const std::string& account, const std::string& job,
                               const std::string& devices, int socket) const {
  return Order(socket_, Verb::kGuardian, account, job, socket, devices);
}

Status Launcher::StartFiles(const std::string& account, int socket) const {
  return Order(socket_, Verb::kFiles, account, "", socket);
}

Status Launcher::End(const std::string& job) const { return Order(socket_, Verb::kEnd, "", job); }

Status Launcher::Forget(const std::string& job) const {
  return Order(socket_, Verb::kForget, "", job);
}

}  // namespace muster
