#include "worker/service/testing/fake_coordinator.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_callback.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "common/base/check.h"
#include "common/base/cluster_paths.h"
#include "common/base/files.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token.h"
#include "muster/v1/worker_api.grpc.pb.h"

namespace muster::worker {

struct FakeCoordinatorForTest::Impl : v1::Worker::CallbackService {
  class Reactor : public grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage> {
   public:
    explicit Reactor(Impl& impl) : impl_(impl) { StartRead(&incoming_); }

    void OnReadDone(bool ok) override {
      if (!ok) return Finish(grpc::Status::OK);
      const bool refused = incoming_.has_hello() &&
                           incoming_.hello().protocol_version() != impl_.options.protocol_version;
      {
        const std::lock_guard lock(impl_.mutex);
        if (incoming_.has_hello() && !refused) Welcome();
        impl_.received.push_back(incoming_);
      }
      impl_.changed.notify_all();
      refused ? Refuse() : StartRead(&incoming_);
    }
    void OnWriteDone(bool) override {
      const std::lock_guard lock(impl_.mutex);
      if (queue_.empty()) return;  // the refusal
      queue_.pop_front();
      if (!queue_.empty()) StartWrite(&queue_.front());
    }
    void OnDone() override {
      {
        const std::lock_guard lock(impl_.mutex);
        if (impl_.reactor == this) impl_.reactor = nullptr;
      }
      delete this;
    }
    // With the mutex held.
    void Write(const v1::CoordinatorMessage& message) {
      queue_.push_back(message);
      if (queue_.size() == 1) StartWrite(&queue_.front());
    }

   private:
    void Welcome() {
      impl_.reactor = this;
      v1::CoordinatorMessage message;
      message.mutable_welcome()->set_protocol_version(impl_.options.protocol_version);
      message.mutable_welcome()->set_min_protocol_version(impl_.options.protocol_version);
      message.mutable_welcome()->set_max_protocol_version(impl_.options.max_protocol_version);
      message.mutable_welcome()->set_cluster("test");
      message.mutable_welcome()->set_heartbeat_ms(50);
      message.mutable_welcome()->set_progress_ms(20);
      message.mutable_welcome()->set_epoch(impl_.options.epoch);
      Write(message);
    }

    void Refuse() {
      refusal_.mutable_refused()->set_reason(v1::REFUSAL_REASON_PROTOCOL_VERSION);
      StartWriteAndFinish(&refusal_, {},
                          {grpc::StatusCode::FAILED_PRECONDITION, "another protocol version"});
    }

    Impl& impl_;
    v1::CoordinatorMessage refusal_;
    v1::WorkerMessage incoming_;
    std::deque<v1::CoordinatorMessage> queue_;
  };

  grpc::ServerBidiReactor<v1::WorkerMessage, v1::CoordinatorMessage>* Session(
      grpc::CallbackServerContext*) override {
    return new Reactor(*this);
  }

  Options options;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<v1::WorkerMessage> received;
  Reactor* reactor = nullptr;
  std::unique_ptr<grpc::Server> server;
};

FakeCoordinatorForTest::FakeCoordinatorForTest(const std::string& cluster_dir, Options options)
    : impl_(std::make_unique<Impl>()) {
  const ClusterPaths paths{cluster_dir};
  impl_->options = options;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(impl_.get());
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);  // clients ping each second
  impl_->server = builder.BuildAndStart();
  MUSTER_CHECK(MakeDirectories(paths.CoordinatorDir()).ok(), "coordinator directory");
  MUSTER_CHECK(LoadOrCreateToken(paths.Token()).ok(), "token");
  const Endpoint endpoint{.grpc = "127.0.0.1:" + std::to_string(port),
                          .http = "127.0.0.1:1",
                          .epoch = impl_->options.epoch};
  MUSTER_CHECK(WriteEndpoint(paths.Endpoint(), endpoint).ok(), "endpoint");
}

FakeCoordinatorForTest::~FakeCoordinatorForTest() {
  impl_->server->Shutdown(std::chrono::system_clock::now());
  impl_->server->Wait();
}

void FakeCoordinatorForTest::Send(const v1::CoordinatorMessage& message) {
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, std::chrono::seconds(10), [this] { return impl_->reactor; });
  MUSTER_CHECK(impl_->reactor != nullptr, "no worker is connected");
  impl_->reactor->Write(message);
}

std::optional<v1::WorkerMessage> FakeCoordinatorForTest::Await(
    const std::function<bool(const v1::WorkerMessage&)>& wanted) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  std::unique_lock lock(impl_->mutex);
  for (;;) {
    while (!impl_->received.empty()) {
      v1::WorkerMessage message = std::move(impl_->received.front());
      impl_->received.pop_front();
      if (wanted(message)) return message;
    }
    if (impl_->changed.wait_until(lock, until) == std::cv_status::timeout) return std::nullopt;
  }
}

}  // namespace muster::worker
