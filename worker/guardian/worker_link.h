// WorkerLink: the guardian's end of the connection to the worker. One connection at a time; a new
// one replaces the old. A worker that does not read loses its connection and never blocks the
// guardian: the replay after its next connect restores what it missed.
//
// Owned by the guardian's single thread.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/control_pipe/packet_socket.h"
#include "worker/guardian/protocol.h"

namespace muster {

class WorkerLink {
 public:
  struct Command {
    GuardianCommand command;
    UniqueFd descriptor;  // of a GuardianHold or GuardianSecrets
  };

  // `first` is a connection that the worker handed over at the guardian's start, or not valid.
  // `worker_uid`: the user who may connect beside this one.
  static Result<WorkerLink> Open(const std::string& directory, PacketSocket first,
                                 std::int64_t worker_uid);

  bool connected() const { return connection_.valid(); }
  // Adds the descriptors that poll must wait for, and makes `until` no later than its deadline.
  void AddPollEntries(TimePoint now, std::vector<pollfd>* entries,
                      std::optional<TimePoint>* until) const;

  // Accepts waiting connections; true if there is a new one, which needs the replay. Without a free
  // descriptor the old connection makes room for the new one; if there is none either, waiting
  // connections are left alone for a second.
  bool Accept(TimePoint now);
  // Received commands; malformed ones end the connection.
  std::vector<Command> Receive();
  void Send(const GuardianEvent& event, int fd = -1);

 private:
  WorkerLink(UniqueFd listen_fd, PacketSocket first, std::int64_t worker_uid)
      : listen_fd_(std::move(listen_fd)), connection_(std::move(first)), worker_uid_(worker_uid) {}
  void Drop(const Status& why);

  UniqueFd listen_fd_;
  PacketSocket connection_;
  std::int64_t worker_uid_;
  TimePoint accepts_from_{};
};

}  // namespace muster
