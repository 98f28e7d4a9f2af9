#include "coordinator/service/worker_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "common/base/failpoint.h"
#include "common/rpc/message_limits.h"
#include "common/rpc/peer_certificate.h"
#include "common/telemetry/log.h"
#include "common/wire/codec.h"

namespace muster {
namespace {

constexpr Duration kHelloCheck = std::chrono::seconds(1);
constexpr int kLogReadBytes = 256 << 10;

// A call that is refused before it begins.
class RefusedStream final
    : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

// A client with the cluster's token may represent every node, one with a certificate its own.
Status CheckSpeaksFor(const std::optional<CertificateInfo>& peer, const NodeName& node) {
  if (!peer || peer->identity.name == node.value) return OkStatus();
  return PermissionDenied("the certificate of node '" + peer->identity.name +
                          "' is not valid for node '" + node.value +
                          "'; start that worker with --node " + peer->identity.name +
                          " or with credentials of its own");
}

}  // namespace

WorkerService::WorkerService(EventLoop& loop, const Authenticator& authenticator,
                             ControllerRuntime& runtime, std::size_t max_streams)
    : loop_(loop),
      authenticator_(authenticator),
      runtime_(runtime),
      max_streams_(max_streams),
      log_reads_(loop),
      hello_timer_(loop),
      heartbeats_timer_(loop) {
  hello_timer_.Start(kHelloCheck, [this] { CloseWithoutHello(); });
}

grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* WorkerService::Session(
    grpc::CallbackServerContext* context) {
  if (const grpc::Status status = authenticator_.Check(*context); !status.ok()) {
    return new RefusedStream(status);
  }
  auto stream = std::make_shared<WorkerStream>(next_session_++, *this,
                                               PeerCertificate(*context->auth_context()));
  loop_.Post([this, stream] { Register(stream); });
  stream->Begin();
  return stream.get();
}

void WorkerService::OnMessage(const StreamPtr& stream, v1::WorkerMessage message) {
  if (message.has_hello()) {
    loop_.Post([this, stream, hello = FromProto(std::move(*message.mutable_hello()))]() mutable {
      HandleHello(stream, std::move(hello));
    });
  } else if (message.has_heartbeat()) {
    OnHeartbeat(stream);
  } else if (message.has_log_chunk()) {
    const Status limits = ApplyLimits(message.mutable_log_chunk());
    if (!limits.ok()) {
      message.mutable_log_chunk()->clear_data();
      message.mutable_log_chunk()->set_error(limits.message());
    }
    loop_.Post([this, stream, chunk = std::move(*message.mutable_log_chunk())] {
      HandleLogChunk(stream, chunk);
    });
  } else {
    loop_.Post([this, stream, said = FromProto(std::move(message))]() mutable {
      HandleMessage(stream, std::move(said), [stream] { stream->ReadNext(); });
    });
  }
}

void WorkerService::OnHeartbeat(const StreamPtr& stream) {
  if (stream->MarkHeartbeat()) {
    std::lock_guard lock(heartbeats_mutex_);
    heartbeats_.push_back(stream);
    if (heartbeats_.size() == 1)
      loop_.Post(
          [this] { heartbeats_timer_.Start(kHeartbeatsEvery, [this] { HandleHeartbeats(); }); });
  }
  stream->ReadNext();
}

void WorkerService::HandleHeartbeats() {
  std::vector<StreamPtr> heartbeats;
  {
    std::lock_guard lock(heartbeats_mutex_);
    heartbeats.swap(heartbeats_);
  }
  Failpoint("worker.heartbeat");
  for (const StreamPtr& stream : heartbeats)
    HandleMessage(stream, WorkerMessage(Heartbeat{}), [stream] { stream->HeartbeatTaken(); });
}

void WorkerService::OnEnd(const StreamPtr& stream) {
  loop_.Post([this, id = stream->id()] { Forget(id); });
}

void WorkerService::Register(const StreamPtr& stream) {
  if (!closed_.ok()) return stream->Drop(closed_);
  if (streams_.size() >= max_streams_) {
    return stream->Drop(ResourceExhausted(
        std::to_string(streams_.size()) +
        " workers are connected, the most that a coordinator takes; end one to start another"));
  }
  streams_[stream->id()] = {stream, SystemClock().Now()};
}

WorkerService::Entry* WorkerService::Find(const StreamPtr& stream) {
  const auto found = streams_.find(stream->id());
  return found == streams_.end() ? nullptr : &found->second;
}

void WorkerService::HandleHello(const StreamPtr& stream, Result<Hello> hello) {
  Entry* entry = Find(stream);
  if (entry == nullptr) return;
  if (hello.ok() && entry->said_hello) hello = InvalidArgument("a second Hello on one stream");
  if (hello.ok()) {
    if (Status status = CheckSpeaksFor(stream->peer(), hello->node); !status.ok())
      hello = std::move(status);
  }
  if (!hello.ok()) {
    Log().warn("a worker was refused: {}", hello.status().message());
    return stream->Close(hello.status());
  }
  Log().info("node {}: worker {} reports, pid {}, {} slots, {} guardians", hello->node.value,
             hello->instance, hello->pid, hello->slots, hello->hosted.size());
  entry->said_hello = true;
  entry->node = hello->node.value;
  Failpoint("worker.hello");
  runtime_.Handle(WorkerHello{stream->id(), *std::move(hello)}, [stream] {
    Failpoint("worker.taken");
    stream->ReadNext();
  });
}

void WorkerService::HandleMessage(const StreamPtr& stream, Result<WorkerMessage> message,
                                  std::function<void()> taken) {
  Entry* entry = Find(stream);
  if (entry == nullptr) return;
  const StatusCode code = message.status().code();
  if (code == StatusCode::kResourceExhausted || code == StatusCode::kUnimplemented) {
    // The stream continues without it: a rank's fault must not cost its node, and a newer worker
    // may say more.
    if (entry->dropped++ == 0)
      Log().warn("a message of worker stream {} is dropped, as will be others like it: {}",
                 stream->id(), message.status().message());
    return taken();
  }
  if (message.ok() && !entry->said_hello) {
    message = InvalidArgument("the first message of a stream must be Hello");
  }
  if (!message.ok()) {
    Log().warn("a worker's stream is ended: {}", message.status().message());
    return stream->Close(message.status());
  }
  Failpoint("worker.message");
  runtime_.Handle(WorkerMessageReceived{stream->id(), *std::move(message)}, std::move(taken));
}

void WorkerService::HandleLogChunk(const StreamPtr& stream, const v1::LogChunk& chunk) {
  if (Find(stream) == nullptr) return;
  log_reads_.Complete(stream->id(), chunk);
  stream->ReadNext();
}

void WorkerService::Forget(SessionId session) {
  const auto entry = streams_.extract(session);
  if (entry.empty()) return;
  Failpoint("worker.gone");
  log_reads_.FailSession(session);
  if (entry.mapped().said_hello) runtime_.Handle(WorkerStreamClosed{session});
}

std::vector<std::string> WorkerService::NodesWithToken() const {
  std::vector<std::string> nodes;
  for (const auto& [id, entry] : streams_)
    if (!entry.stream->peer() && entry.said_hello) nodes.push_back(entry.node);
  std::ranges::sort(nodes);
  return nodes;
}

void WorkerService::CloseRevoked() {
  for (const auto& [id, entry] : streams_) {
    const std::optional<CertificateInfo>& peer = entry.stream->peer();
    const Status status = authenticator_.CheckMayStay(peer);
    if (status.ok()) continue;
    Log().warn("the stream of {} is ended: {}",
               peer ? IdentityUri(peer->identity) : "a worker with the token", status.message());
    entry.stream->Drop(status);
  }
}

void WorkerService::CloseWithoutHello() {
  const TimePoint limit = SystemClock().Now() - kHelloLimit;
  for (const auto& [id, entry] : streams_) {
    if (!entry.said_hello && entry.opened < limit) {
      entry.stream->Drop(DeadlineExceeded("no Hello came"));
    }
  }
  hello_timer_.Start(kHelloCheck, [this] { CloseWithoutHello(); });
}

void WorkerService::Send(const WorkerSend& send) {
  const auto found = streams_.find(send.session);
  if (found != streams_.end()) found->second.stream->Send(ToProto(send.message));
}

void WorkerService::Close(const CloseSession& close) {
  const auto found = streams_.find(close.session);
  if (found == streams_.end()) return;
  Log().warn("worker stream {} is closed: {}", close.session, close.status.message());
  found->second.stream->Close(close.status);
}

void WorkerService::CloseAll(const Status& reason) {
  closed_ = reason;
  hello_timer_.Cancel();
  heartbeats_timer_.Cancel();
  for (const auto& [id, entry] : streams_) entry.stream->Drop(reason);
}

void WorkerService::ReadLog(const LogLocation& location, int rank, std::int64_t offset,
                            LogReads::Done done) {
  const auto found = streams_.find(location.session);
  if (found == streams_.end()) {
    return done(Unavailable("node " + location.node.value + " is not connected"));
  }
  // The id is known only once the read is accepted, so `done` is kept for the refusal.
  const Result<std::uint64_t> id = log_reads_.Start(location.session, done);
  if (!id.ok()) return done(id.status());
  v1::CoordinatorMessage message;
  v1::ReadLog& read = *message.mutable_read_log();
  read.set_request_id(*id);
  read.set_job_id(location.job.value);
  read.set_generation(location.generation);
  read.set_rank(rank);
  read.set_offset(offset);
  read.set_limit_bytes(kLogReadBytes);
  read.set_output_dir(location.output_dir);
  read.set_account(location.account);
  read.set_metrics(location.metrics);
  found->second.stream->Send(std::move(message));
}

}  // namespace muster
