// WorkerService: the streams of all workers, and the way from them to the controller and back.
//
// Owned by the server. gRPC's threads call Session; everything else belongs to the loop's thread.
// Messages are turned into plain values on gRPC's threads and posted to the loop. A stream with a
// node's certificate represents that node only: its Hello must name the node, and from then on the
// controller checks each message against the session's node. Heartbeats, two thirds of the messages
// of thousands of nodes, wait for up to kHeartbeatsEvery and are posted together. A stream without
// a Hello is dropped after kHelloLimit; the controller limits how long a worker may be silent after
// that.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "common/runtime/event_loop.h"
#include "coordinator/control/effects.h"
#include "coordinator/control/events.h"
#include "coordinator/service/authenticator.h"
#include "coordinator/service/controller_runtime.h"
#include "coordinator/service/log_reads.h"
#include "coordinator/service/worker_stream.h"
#include "muster/v1/worker_api.grpc.pb.h"

namespace muster {

class WorkerService final : public v1::Worker::CallbackService, public WorkerStream::Handler {
 public:
  static constexpr std::size_t kMaxStreams = kMaxClusterNodes;
  static constexpr Duration kHelloLimit = std::chrono::seconds(10);
  static constexpr Duration kHeartbeatsEvery = std::chrono::milliseconds(20);

  // Above `max_streams` at once, streams are refused.
  WorkerService(EventLoop& loop, const Authenticator& authenticator, ControllerRuntime& runtime,
                std::size_t max_streams = kMaxStreams);

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext* context) override;

  // Dropped if that stream has ended; a WorkerStreamClosed reports the end to the controller.
  void Send(const WorkerSend& send);
  void Close(const CloseSession& close);
  // Nodes whose workers are connected with the cluster's token, without a certificate.
  std::vector<std::string> NodesWithToken() const;
  void CloseAll(const Status& reason);
  // Ends the streams of nodes that the authenticator no longer allows, by certificate or token.
  void CloseRevoked();

  void ReadLog(const LogLocation& location, int rank, std::int64_t offset, LogReads::Done done);

  std::size_t streams() const { return streams_.size(); }

 private:
  struct Entry {
    std::shared_ptr<WorkerStream> stream;
    TimePoint opened;
    std::string node = {};  // after its Hello
    bool said_hello = false;
    std::uint64_t dropped = 0;  // messages over a limit
  };
  using StreamPtr = std::shared_ptr<WorkerStream>;

  void OnMessage(const StreamPtr& stream, v1::WorkerMessage message) override;
  void OnEnd(const StreamPtr& stream) override;

  void Register(const StreamPtr& stream);
  void HandleHello(const StreamPtr& stream, Result<Hello> hello);
  // `taken`: once the controller has it, or it was dropped.
  void HandleMessage(const StreamPtr& stream, Result<WorkerMessage> message,
                     std::function<void()> taken);
  void OnHeartbeat(const StreamPtr& stream);
  void HandleHeartbeats();
  void HandleLogChunk(const StreamPtr& stream, const v1::LogChunk& chunk);
  // Empty for a stream that was given up.
  Entry* Find(const StreamPtr& stream);
  void Forget(SessionId session);
  void CloseWithoutHello();

  EventLoop& loop_;
  const Authenticator& authenticator_;
  ControllerRuntime& runtime_;
  const std::size_t max_streams_;
  LogReads log_reads_;
  Timer hello_timer_;
  Timer heartbeats_timer_;
  std::mutex heartbeats_mutex_;
  std::vector<StreamPtr> heartbeats_;  // a heartbeat of each waits; under the mutex
  std::atomic<SessionId> next_session_ = 1;
  std::unordered_map<SessionId, Entry> streams_;
  Status closed_;  // not OK: the server is shutting down
};

}  // namespace muster
