#include "worker/service/coordinator_session.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "common/base/files.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/leader.h"
#include "common/rpc/message_limits.h"
#include "common/telemetry/log.h"
#include "common/wire/codec.h"
#include "common/wire/outlives_stream.h"
#include "muster/v1/worker_api.grpc.pb.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kFirstPause{50};
constexpr std::chrono::milliseconds kLongestPause{1000};
constexpr std::chrono::milliseconds kDefaultHeartbeat{1000};
constexpr std::size_t kMaxQueue = 4096;
constexpr std::size_t kMaxKept = 256;

}  // namespace

// Set by gRPC's last call into a stream.
class CoordinatorSession::Ended {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  void Await() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// One stream. gRPC calls it from its own threads; it only posts. A hold keeps it alive until the
// session, which writes from its loop, has seen the end of the reading side and writes no more.
class CoordinatorSession::Stream
    : public grpc::ClientBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
 public:
  Stream(CoordinatorSession& session, std::uint64_t number)
      : session_(session), loop_(session.loop_), alive_(session.alive_), number_(number) {}

  void Open(std::shared_ptr<Stream> self, CoordinatorChannel coordinator) {
    self_ = std::move(self);
    AttachToken(context_, coordinator);
    address_ = std::move(coordinator.address);
    channel_ = std::move(coordinator.channel);
    stub_ = v1::Worker::NewStub(channel_);
    stub_->async()->Session(&context_, this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }

  void Write(std::shared_ptr<const v1::WorkerMessage> message) {
    outgoing_ = std::move(message);
    StartWrite(outgoing_.get());
  }

  void Cancel() { context_.TryCancel(); }
  // No Write comes after this.
  void LetGo() { RemoveHold(); }
  const std::string& address() const { return address_; }
  std::shared_ptr<Ended> ended() const { return ended_; }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Post([number = number_](CoordinatorSession& session) { session.OnReadEnd(number); });
      return;
    }
    Post([number = number_, message = incoming_](CoordinatorSession& session) {
      session.OnMessage(number, message);
    });
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return;
    Post([number = number_](CoordinatorSession& session) { session.OnWritten(number); });
  }

  // The loop drops the last reference; `this` may be gone once that is posted.
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<Ended> ended = ended_;
    Post([number = number_, status = FromGrpcStatus(status),
          leader = StandbyAnswerOf(context_).value_or(StandbyAnswer{}).leader,
          self = std::move(self_)](CoordinatorSession& session) {
      session.OnDone(number, status, leader);
    });
    ended->Set();
  }

 private:
  template <typename Function>
  void Post(Function function) {
    loop_.Post([session = &session_, alive = alive_, function = std::move(function)] {
      if (*alive) function(*session);
    });
  }

  CoordinatorSession& session_;
  EventLoop& loop_;
  const std::shared_ptr<bool> alive_;
  const std::uint64_t number_;
  const std::shared_ptr<Ended> ended_ = std::make_shared<Ended>();
  std::shared_ptr<Stream> self_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Worker::Stub> stub_;
  grpc::ClientContext context_;
  v1::CoordinatorMessage incoming_;
  std::shared_ptr<const v1::WorkerMessage> outgoing_;
};

CoordinatorSession::CoordinatorSession(EventLoop& loop, CoordinatorSessionOptions options,
                                       Handlers handlers)
    : loop_(loop),
      options_(std::move(options)),
      handlers_(std::move(handlers)),
      heartbeat_interval_(kDefaultHeartbeat),
      pauses_(kFirstPause, kLongestPause),
      retry_timer_(loop),
      heartbeat_timer_(loop) {}

CoordinatorSession::~CoordinatorSession() {
  *alive_ = false;
  if (!stream_) return;
  const std::shared_ptr<Ended> ended = stream_->ended();
  stream_->Cancel();
  if (!reading_ended_) stream_->LetGo();
  ended->Await();
}

void CoordinatorSession::Start() {
  // Missing at first. An unreadable one counts as a new node's.
  if (const auto text = ReadFile(options_.epoch_path, 64); text.ok()) {
    epoch_ = std::strtoull(text->c_str(), nullptr, 10);
  }
  Connect();
}

Result<CoordinatorChannel> CoordinatorSession::OpenChannel() const {
  MUSTER_ASSIGN_OR_RETURN(const Endpoint endpoint,
                          FindCoordinator(*options_.coordinators, options_.endpoint_path));
  return OpenCoordinator(endpoint, options_.tls_dir, options_.token_path);
}

template <typename Read, typename Then>
bool CoordinatorSession::ReadOffLoop(Read read, Then then) {
  return files_.TrySubmit([&loop = loop_, alive = alive_, read, then] {
    loop.Post([alive, then, result = std::make_shared<std::invoke_result_t<Read>>(read())] {
      if (*alive) then(std::move(*result));
    });
  });
}

void CoordinatorSession::Connect() {
  const bool taken =
      ReadOffLoop([this] { return OpenChannel(); },
                  [this](Result<CoordinatorChannel> coordinator) { Open(std::move(coordinator)); });
  if (!taken) Retry(Unavailable("the endpoint file is still being read"));
}

void CoordinatorSession::Open(Result<CoordinatorChannel> coordinator) {
  if (!coordinator.ok()) return Retry(coordinator.status());
  ++stream_number_;
  stream_ = std::make_shared<Stream>(*this, stream_number_);
  reading_ended_ = false;
  refusal_ = OkStatus();
  stream_->Open(stream_, *std::move(coordinator));
  Hello hello = options_.identity;
  hello.hosted = handlers_.hosted();
  hello.epoch_met = epoch_;
  v1::WorkerMessage message;
  *message.mutable_hello() = ToProto(hello);
  // Remaining excess is the worker's own, and the coordinator refuses it by name.
  static_cast<void>(ApplyLimits(message.mutable_hello()));
  Enqueue({std::make_shared<const v1::WorkerMessage>(std::move(message))});
}

void CoordinatorSession::Retry(const Status& why) {
  // The same problem is logged once, not at every try.
  if (why.message() != last_problem_)
    Log().log(version_refused_ ? LogLevel::kError : LogLevel::kWarning,
              "not connected to the coordinator: {}; trying again", why.ToString());
  last_problem_ = why.message();
  retry_timer_.Start(pauses_.Next(), [this] { Connect(); });
}

// A replaced coordinator may live on, and the link to it too, until its next commit.
void CoordinatorSession::LookForSuccessor() {
  if (looking_) return;
  looking_ = ReadOffLoop(
      [this] { return FindCoordinator(*options_.coordinators, options_.endpoint_path); },
      [this, stream = stream_number_](const Result<Endpoint>& endpoint) {
        looking_ = false;
        const bool replaced = endpoint.ok() && endpoint->epoch > epoch_;
        if (!replaced || stream != stream_number_ || !welcomed_) return;
        Log().info("another coordinator has taken over; leaving the one of epoch {}", epoch_);
        stream_->Cancel();
      });
}

// Before any of its messages is handled. The file is small and on the node's own disk, and it is
// written once for each takeover.
bool CoordinatorSession::Accepts(const Welcome& welcome) {
  if (welcome.epoch == epoch_) return true;
  if (welcome.epoch > epoch_) {
    const Status kept =
        WriteFileAtomically(options_.epoch_path, std::to_string(welcome.epoch) + "\n", 0600);
    if (!kept.ok()) Log().warn("the epoch is forgotten with this process: {}", kept.message());
    epoch_ = welcome.epoch;
    return true;
  }
  refusal_ = FailedPrecondition("the coordinator of epoch " + std::to_string(welcome.epoch) +
                                " was replaced by that of epoch " + std::to_string(epoch_) +
                                "; it still answers there (if it was put back on purpose, remove " +
                                options_.epoch_path + " and start this worker again)");
  return false;
}

void CoordinatorSession::OnMessage(std::uint64_t stream, const v1::CoordinatorMessage& message) {
  if (stream != stream_number_ || !refusal_.ok()) return;
  const Result<CoordinatorMessage> value = FromProto(message);
  if (!value.ok()) {  // of a newer coordinator
    Log().warn("a message of the coordinator is not understood: {}", value.status().message());
    return;
  }
  if (const auto* refused = std::get_if<Refused>(&*value)) {
    // The status that ends the stream contains it as text.
    version_refused_ = refused->reason == RefusalReason::kProtocolVersion;
    return;
  }
  if (const auto* welcome = std::get_if<Welcome>(&*value)) {
    version_refused_ = false;
    if (!Accepts(*welcome)) {
      stream_->Cancel();
      return;
    }
    welcomed_ = true;
    ++connects_;
    pauses_.Reset();
    last_problem_.clear();
    if (welcome->heartbeat_ms > 0)
      heartbeat_interval_ = std::chrono::milliseconds(welcome->heartbeat_ms);
    Log().info("connected to the coordinator of cluster {}{}", welcome->cluster,
               welcome->epoch == 0 ? "" : ", epoch " + std::to_string(welcome->epoch));
    for (Message& kept : std::exchange(kept_, {})) Enqueue(std::move(kept));
    ScheduleHeartbeat();
  }
  handlers_.on_message(*value);
}

void CoordinatorSession::OnReadEnd(std::uint64_t stream) {
  if (stream != stream_number_ || reading_ended_) return;
  reading_ended_ = true;
  stream_->LetGo();
}

void CoordinatorSession::OnDone(std::uint64_t stream, const Status& status,
                                const std::string& leader) {
  if (stream != stream_number_) return;
  // Other machines' addresses take credentials.
  options_.coordinators->Failed(stream_->address(), options_.tls_dir.empty() ? "" : leader);
  stream_.reset();
  welcomed_ = false;
  writing_ = false;
  heartbeat_timer_.Cancel();
  for (Message& message : std::exchange(queue_, {}))
    if (message.outlives_stream) Keep(std::move(message));
  if (!refusal_.ok()) return Retry(refusal_);
  Retry(status.ok() ? Unavailable("the coordinator ended the stream") : status);
}

void CoordinatorSession::Send(const WorkerMessage& message) {
  v1::WorkerMessage limited = ToProto(message);
  if (const Status status = ApplyLimits(&limited); !status.ok()) {
    Log().warn("a message to the coordinator is dropped: {}", status.message());
    return;
  }
  Message outgoing{std::make_shared<const v1::WorkerMessage>(std::move(limited)),
                   OutlivesStream(message)};
  if (!welcomed_ && outgoing.outlives_stream)
    Keep(std::move(outgoing));
  else if (stream_)
    Enqueue(std::move(outgoing));
}

void CoordinatorSession::Keep(Message message) {
  if (kept_.size() < kMaxKept)
    kept_.push_back(std::move(message));
  else
    ++dropped_;
}

bool CoordinatorSession::MakeRoom() {
  if (queue_.size() < kMaxQueue) return true;
  // gRPC may be using the front.
  const auto progress = std::find_if(queue_.begin() + 1, queue_.end(), [](const auto& message) {
    return message.wire->has_progress();
  });
  ++dropped_;
  if (progress == queue_.end()) return false;
  queue_.erase(progress);
  return true;
}

void CoordinatorSession::Enqueue(Message message) {
  if (!MakeRoom()) {
    if (message.wire->has_progress()) return;
    // A coordinator that accepts nothing counts as gone: the next Hello contains everything.
    Log().warn("the coordinator does not accept messages; opening a new stream");
    queue_.resize(1);
    stream_->Cancel();
    return;
  }
  queue_.push_back(std::move(message));
  if (!writing_) WriteNext();
}

void CoordinatorSession::WriteNext() {
  writing_ = !queue_.empty() && stream_ != nullptr && !reading_ended_;
  if (!writing_) return;
  sent_since_heartbeat_ = true;
  stream_->Write(queue_.front().wire);
}

void CoordinatorSession::OnWritten(std::uint64_t stream) {
  if (stream != stream_number_ || !stream_ || queue_.empty()) return;
  queue_.pop_front();
  WriteNext();
}

void CoordinatorSession::ScheduleHeartbeat() {
  heartbeat_timer_.Start(heartbeat_interval_, [this] {
    if (!welcomed_) return;
    LookForSuccessor();
    if (!sent_since_heartbeat_) Send(Heartbeat{});
    sent_since_heartbeat_ = false;
    ScheduleHeartbeat();
  });
}

}  // namespace muster::worker
