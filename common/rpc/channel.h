// Opens the channel to a coordinator with the arguments that all of Muster's clients share.
#pragma once

#include <grpcpp/channel.h>

#include <memory>
#include <string>

namespace muster {

// No message of the protocol is larger; both sides refuse more.
inline constexpr int kMaxMessageBytes = 4 << 20;

// `address` is Endpoint::grpc. Returns at once; the connection is made by the first call. Loopback
// only, so: no proxy, quick reconnects (50 ms doubling to 1 s), no shared subchannels.
std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address);

}  // namespace muster
