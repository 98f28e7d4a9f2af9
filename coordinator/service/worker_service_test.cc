#include "coordinator/service/worker_service.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "common/base/version.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "coordinator/service/testing/no_sink.h"
#include "coordinator/store/testing/memory_store.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// As many as the largest gang has nodes.
static_assert(WorkerService::kMaxStreams == 16384);

class WorkerServiceTest : public ::testing::Test {
 protected:
  static constexpr std::size_t kStreams = 2;

  // Ends its call with itself.
  struct Stream {
    Stream(v1::Worker::Stub& stub, const std::string& token) {
      AttachToken(context, token);
      call = stub.Session(&context);
    }
    ~Stream() { context.TryCancel(); }
    Status WaitForEnd() {
      v1::CoordinatorMessage message;
      while (call->Read(&message)) continue;
      return FromGrpcStatus(call->Finish());
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReaderWriter<v1::WorkerMessage, v1::CoordinatorMessage>> call;
  };

  WorkerServiceTest() : thread_([this] { loop_.Run(); }) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Worker::NewStub(OpenChannel("127.0.0.1:" + std::to_string(port)));
  }
  ~WorkerServiceTest() override {
    server_->Shutdown(std::chrono::system_clock::now());
    loop_.Stop();
    thread_.join();
  }

  std::unique_ptr<Stream> Open() { return std::make_unique<Stream>(*stub_, token_); }
  std::size_t Streams() {
    std::promise<std::size_t> streams;
    loop_.Post([&] { streams.set_value(service_.streams()); });
    return streams.get_future().get();
  }

  const std::string token_ = std::string(64, 'a');
  EventLoop loop_;
  MemoryStore store_;
  NoSink sink_;
  ControllerRuntime runtime_{MakeLoopHandle(loop_), store_, sink_, ControllerOptions{},
                             SystemClock()};
  Authenticator authenticator_{token_, "", SystemClock()};
  WorkerService service_{loop_, authenticator_, runtime_, kStreams};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::Worker::Stub> stub_;
  std::thread thread_;
};

TEST_F(WorkerServiceTest, StreamsAboveTheLimitAreRefusedUntilOneEnds) {
  auto first = Open();
  const auto second = Open();
  ASSERT_TRUE(Eventually([this] { return Streams() == kStreams; }));
  const Status refused = Open()->WaitForEnd();
  EXPECT_EQ(refused.code(), StatusCode::kResourceExhausted) << refused.ToString();
  EXPECT_THAT(refused.message(), HasSubstr("2 workers are connected"));
  first.reset();
  ASSERT_TRUE(Eventually([this] { return Streams() == kStreams - 1; }));
  const auto next = Open();
  EXPECT_TRUE(Eventually([this] { return Streams() == kStreams; }));
}

// Its stream ended, and again with each new one.
TEST_F(WorkerServiceTest, AMessageThatOnlyANewerWorkerKnowsDoesNotEndItsStream) {
  const auto stream = Open();
  v1::WorkerMessage hello;
  hello.mutable_hello()->set_protocol_version(kProtocols.max + 1);
  hello.mutable_hello()->set_min_protocol_version(kProtocols.min);
  hello.mutable_hello()->set_node("n1");
  ASSERT_TRUE(stream->call->Write(hello));
  v1::WorkerMessage unknown;
  unknown.GetReflection()->MutableUnknownFields(&unknown)->AddLengthDelimited(1000, "new");
  ASSERT_TRUE(stream->call->Write(unknown));
  v1::WorkerMessage notice;
  notice.mutable_node_notice()->set_kind(static_cast<v1::NodeNoticeKind>(99));
  ASSERT_TRUE(stream->call->Write(notice));
  ASSERT_TRUE(stream->call->Write(hello));
  EXPECT_THAT(stream->WaitForEnd().message(), HasSubstr("a second Hello"));
}

}  // namespace
}  // namespace muster
