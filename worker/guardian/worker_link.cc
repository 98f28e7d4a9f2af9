#include "worker/guardian/worker_link.h"

#include <algorithm>
#include <utility>

#include "worker/guardian/log_line.h"
#include "worker/process/unix_socket.h"

namespace muster {
namespace {

// Longer than a busy worker needs to empty its socket, shorter than a recovery may be delayed.
constexpr std::chrono::seconds kSendBudget{1};
// Shorter than a worker waits for a guardian's first message.
constexpr std::chrono::seconds kAcceptPause{1};

}  // namespace

Result<WorkerLink> WorkerLink::Open(const std::string& directory, PacketSocket first,
                                    std::int64_t worker_uid) {
  MUSTER_ASSIGN_OR_RETURN(UniqueFd listen_fd, ListenPackets(directory, kGuardianSocketName,
                                                            worker_uid != kNoOtherUser));
  return WorkerLink(std::move(listen_fd), std::move(first), worker_uid);
}

void WorkerLink::AddPollEntries(TimePoint now, std::vector<pollfd>* entries,
                                std::optional<TimePoint>* until) const {
  if (now >= accepts_from_)
    entries->push_back({listen_fd_.get(), POLLIN, 0});
  else
    *until = until->has_value() ? std::min(**until, accepts_from_) : accepts_from_;
  if (connection_.valid()) entries->push_back({connection_.fd(), POLLIN, 0});
}

bool WorkerLink::Accept(TimePoint now) {
  bool replaced = false;
  while (now >= accepts_from_) {
    auto accepted = AcceptPackets(listen_fd_.get(), worker_uid_);
    if (accepted.ok()) {
      connection_ = std::move(*accepted);
      replaced = true;
      continue;
    }
    const StatusCode code = accepted.status().code();
    if (code == StatusCode::kUnavailable) break;
    LogLine(accepted.status().ToString());
    if (code != StatusCode::kResourceExhausted) continue;
    // A waiting connection would replace it in any case. Without one, poll would return at once for
    // ever.
    if (connection_.valid() && !replaced)
      connection_.Close();
    else
      accepts_from_ = now + kAcceptPause;
  }
  return replaced;
}

std::vector<WorkerLink::Command> WorkerLink::Receive() {
  std::vector<Command> commands;
  const Deadline poll = Deadline::At({});
  while (connection_.valid()) {
    auto packet = connection_.Receive(poll);
    if (!packet.ok()) {
      if (packet.status().code() == StatusCode::kDeadlineExceeded) break;
      Drop(packet.status());
      break;
    }
    auto command = DecodeGuardianCommand(packet->data);
    const bool lacks_descriptor = command.ok() && packet->fds.empty() &&
                                  (std::holds_alternative<GuardianHold>(*command) ||
                                   std::holds_alternative<GuardianSecrets>(*command));
    if (command.status().code() == StatusCode::kUnimplemented)  // of a newer worker
      LogLine("ignored: " + command.status().message());
    else if (!command.ok())
      Drop(command.status());
    else if (lacks_descriptor)
      Drop(InvalidArgument("a segment, or secrets, came without a descriptor"));
    else
      commands.push_back(
          {*std::move(command), packet->fds.empty() ? UniqueFd() : std::move(packet->fds[0])});
  }
  return commands;
}

void WorkerLink::Send(const GuardianEvent& event, int fd) {
  if (!connection_.valid()) return;
  const std::vector<int> fds = fd >= 0 ? std::vector<int>{fd} : std::vector<int>{};
  const Status status = connection_.Send(Encode(event), fds, Deadline::After(kSendBudget));
  if (!status.ok()) Drop(status);
}

void WorkerLink::Drop(const Status& why) {
  LogLine("the connection to the worker ended: " + why.message());
  connection_.Close();
}

}  // namespace muster
