// How a coordinator that stands by names the one that leads, and how a client reads it.
//
// Free functions; any thread.
#pragma once

#include <grpcpp/client_context.h>

#include <optional>
#include <string>

namespace muster {

// Trailing metadata of a call that a standby coordinator has refused: the leader's address,
// IP:PORT, or one of these.
inline constexpr char kLeaderKey[] = "muster-leader";
inline constexpr char kNoneLeads[] = "none";        // for the moment
inline constexpr char kLeadsElsewhere[] = "local";  // where other machines do not reach it

// What the standby said that has refused a call. nullopt: the call was not refused by one.
struct StandbyAnswer {
  std::string leader;  // IP:PORT; empty: there is none that this client could call
  bool none_leads = false;
};
std::optional<StandbyAnswer> StandbyAnswerOf(const grpc::ClientContext& context);

}  // namespace muster
