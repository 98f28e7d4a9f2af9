// What the guardian says to a rank, as values. docs/trainer-protocol.md describes the messages.
//
// Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"

namespace muster {

// What makes a process a rank of one generation.
struct Assignment {
  Generation generation = 0;
  std::map<std::string, std::string> environment;
  std::string rendezvous_token;  // of the generation; secret, so not in the environment
  UniqueFd log;                  // for standard output and error; invalid: they stay
  UniqueFd listen;               // the rendezvous' listening socket, for rank 0
  std::vector<UniqueFd> locks;   // of its devices, which are locked for as long as these are open
};

// A snapshot segment that the guardian holds.
struct HeldSegment {
  std::string name;
  UniqueFd fd;
};

// Out of the collectives of this generation and of all before it.
struct ParkRequest {
  Generation generation = 0;
  std::string reason;
};

// Finish the step, write a checkpoint, exit.
struct StopRequest {
  std::string reason;
};

struct FaultRequest {
  std::string kind;
  std::string argument;
};

using GuardianMessage =
    std::variant<Assignment, HeldSegment, ParkRequest, StopRequest, FaultRequest>;

// Nothing for what is not understood: a newer guardian may say more.
std::optional<GuardianMessage> ParseGuardianMessage(Packet packet);

}  // namespace muster
