// WorkerStream: the gRPC side of one worker's session.
//
// Made by WorkerService for each call; gRPC keeps it alive until OnDone, the service as long as it
// lists it. gRPC's threads call the reactor's functions, the loop's thread calls Send and Close,
// and any thread calls ReadNext and Drop; a mutex protects the stream. It reads one message, hands
// it to the handler, and reads no other before ReadNext: flow control slows down a worker that
// sends faster than the loop handles. Messages to the worker wait in a bounded queue; a worker that
// does not read until it is full loses its stream and gets the state again after its next Hello.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "common/base/status.h"
#include "common/security/certificate.h"
#include "coordinator/control/events.h"
#include "muster/v1/worker_api.pb.h"

namespace muster {

class WorkerStream : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>,
                     public std::enable_shared_from_this<WorkerStream> {
 public:
  // Called on gRPC's threads.
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnMessage(const std::shared_ptr<WorkerStream>& stream,
                           v1::WorkerMessage message) = 0;
    virtual void OnEnd(const std::shared_ptr<WorkerStream>& stream) = 0;
  };
  static constexpr std::size_t kMaxQueued = 4096;

  // `peer` is the certificate of the stream; empty if it came with the token.
  WorkerStream(SessionId id, Handler& handler, std::optional<CertificateInfo> peer)
      : id_(id), handler_(handler), peer_(std::move(peer)) {}

  // Called once, by its creator, before gRPC gets it.
  void Begin();
  void Send(v1::CoordinatorMessage message);
  void ReadNext();
  // Ends the call after what was sent before.
  void Close(Status status);
  // Ends the call now, without the messages that wait.
  void Drop(Status status);

  // A heartbeat came. True: none was waiting, so this one is to be taken.
  bool MarkHeartbeat() { return !heartbeat_waits_.exchange(true); }
  void HeartbeatTaken() { heartbeat_waits_ = false; }

  SessionId id() const { return id_; }
  const std::optional<CertificateInfo>& peer() const { return peer_; }

 private:
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void PumpLocked();

  const SessionId id_;
  Handler& handler_;
  const std::optional<CertificateInfo> peer_;
  std::shared_ptr<WorkerStream> self_;  // until OnDone
  v1::WorkerMessage incoming_;          // gRPC's while a read is under way

  std::atomic<bool> heartbeat_waits_ = false;

  std::mutex mutex_;
  std::deque<v1::CoordinatorMessage> outgoing_;
  bool writing_ = false;
  bool closing_ = false;
  bool finished_ = false;
  Status final_status_;
};

}  // namespace muster
