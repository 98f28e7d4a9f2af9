// Opens the channel to a coordinator with the arguments that all of Muster's clients share.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "common/base/clock.h"

namespace muster {

// Both sides refuse more. Lists and a worker's Hello grow with the number of jobs; a Hello that was
// refused would keep its node away for good, so the bound is far above what they need.
inline constexpr int kMaxMessageBytes = 32 << 20;

// A client pings this often while a call is open; a server must permit it.
inline constexpr int kKeepaliveMs = 1000;

// No proxy, quick reconnects (50 ms doubling to 1 s), no shared subchannels. Without pings where
// the server permits none.
enum class Pings { kNone, kWhileCallsAreOpen };
grpc::ChannelArguments ChannelArguments(Pings pings = Pings::kWhileCallsAreOpen);

// `address` is Endpoint::grpc, where plain text may be spoken. Returns at once; the connection is
// made by the first call. Over TLS: tls.h.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address);

// Whether the other side takes a connection within `limit`, without the tries that gRPC makes
// again; blocks. `given_up` is asked several times a second.
bool TakesConnections(grpc::Channel& channel, Duration limit,
                      const std::function<bool()>& given_up);

// gRPC counts deadlines in the system clock.
std::chrono::system_clock::time_point SystemDeadline(Duration remaining);

}  // namespace muster
