#include "common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <limits>

namespace muster {
namespace {

constexpr auto kConnectPoll = std::chrono::milliseconds(100);

}  // namespace

grpc::ChannelArguments ChannelArguments(Pings pings) {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxMessageBytes);
  args.SetMaxSendMessageSize(kMaxMessageBytes);
  // A proxy of the environment would carry the token away from this machine.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // Despite its name this is how long one attempt may take: short, a busy machine never connects.
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 5000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  // Pings that measure the bandwidth, several a second of each new connection: messages are small.
  args.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // A connection that a cut link has swallowed is noticed in 3 s. One that is given up for a stall
  // of the machine costs a reconnect and no more: whether a node is lost, its probers say.
  // Set once: of two values of an argument gRPC may take either.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
              pings == Pings::kNone ? std::numeric_limits<int>::max() : kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 2 * kKeepaliveMs);
  // Otherwise a call that only listens pings no more than once in a minute.
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Otherwise channels of one process share their connection and its backoff.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return args;
}

std::shared_ptr<grpc::Channel> OpenChannel(const std::string& address) {
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), ChannelArguments());
}

bool TakesConnections(grpc::Channel& channel, Duration limit,
                      const std::function<bool()>& given_up) {
  const Deadline deadline = Deadline::After(limit);
  for (;;) {
    const grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
    if (state == GRPC_CHANNEL_READY) return true;
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE || deadline.Expired() || given_up()) return false;
    channel.WaitForStateChange(state, SystemDeadline(kConnectPoll));
  }
}

std::chrono::system_clock::time_point SystemDeadline(Duration remaining) {
  return std::chrono::system_clock::now() +
         std::chrono::duration_cast<std::chrono::system_clock::duration>(remaining);
}

}  // namespace muster
