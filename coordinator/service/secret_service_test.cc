#include "coordinator/service/secret_service.h"

#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <string>
#include <thread>

#include "common/base/testing/temp_dir.h"
#include "common/base/version.h"
#include "common/job_spec/parse.h"
#include "common/rpc/channel.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/token.h"
#include "coordinator/service/testing/no_sink.h"
#include "coordinator/store/testing/memory_store.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

constexpr char kSpec[] =
    "name: tiny\nworkdir: /tmp/muster-never-written\nresources: {nodes: 1, ranks_per_node: 1}\n"
    "command: [/bin/true]\n";
constexpr char kJob[] = "0000000001";

class SecretServiceTest : public ::testing::Test {
 protected:
  using Stub = v1::Secrets::Stub;

  explicit SecretServiceTest(const RuntimeLimits& limits = {})
      : runtime_(MakeLoopHandle(loop_), store_, sink_, ControllerOptions{}, SystemClock(), limits) {
    EXPECT_TRUE(runtime_.Restore().ok());
    thread_ = std::thread([this] { loop_.Run(); });
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    stub_ = v1::Secrets::NewStub(OpenChannel("127.0.0.1:" + std::to_string(port)));
  }
  ~SecretServiceTest() override {
    OnLoop([this] { runtime_.Close(Unavailable("end of the test")); });
    server_->Shutdown(std::chrono::system_clock::now());
    loop_.Stop();
    thread_.join();
  }

  void OnLoop(const std::function<void()>& function) {
    std::promise<void> done;
    loop_.Post([&] {
      function();
      done.set_value();
    });
    done.get_future().wait();
  }
  template <typename Value>
  Value Read(const std::function<Value()>& function) {
    Value value;
    OnLoop([&] { value = function(); });
    return value;
  }
  template <typename Request, typename Response>
  Status Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
              const Request& request) {
    grpc::ClientContext context;
    AttachToken(context, token_);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    Response response;
    return FromGrpcStatus((stub_.get()->*method)(&context, request, &response));
  }

  void SetSecret() {
    v1::SetSecretRequest request;
    request.set_name("hf");
    request.set_value("canary");
    const Status status = Call(&Stub::SetSecret, request);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  Status RotateKey() { return Call(&Stub::RotateSecretKey, v1::RotateSecretKeyRequest()); }
  std::string KeyInMemory() {
    return Read<std::string>(
        [this] { return runtime_.controller().Secrets().begin()->second.key_id; });
  }

  // A job of one rank, on n1.
  void StartJob() {
    OnLoop([this] {
      WorkerHello event;
      event.session = 7;
      event.hello.protocol_version = kProtocolVersion;
      event.hello.min_protocol_version = kProtocolVersion;
      event.hello.node = NodeName{"n1"};
      event.hello.address = "127.0.0.1";
      event.hello.host_id = "host";
      event.hello.slots = 1;
      event.hello.instance = "i";
      runtime_.Handle(event);
    });
    ASSERT_TRUE(Eventually([this] { return IsSettled(); }));
    OnLoop([this] {
      runtime_.Ask(SubmitRequested{.request = 0,
                                   .spec_yaml = kSpec,
                                   .key = "",
                                   .new_id = JobId{kJob},
                                   .spec = ParseJobSpec(kSpec)},
                   [](const Reply& reply) { EXPECT_EQ(reply.status, OkStatus()); });
    });
    ASSERT_TRUE(Eventually([this] { return IsSettled(); }));
  }
  bool IsSettled() {
    return Read<bool>([this] { return runtime_.held_back() == 0; });
  }
  Status Fetch(const std::string& node) {
    v1::FetchSecretsRequest request;
    request.set_job(kJob);
    request.set_generation(1);
    request.set_node(node);
    return Call(&Stub::FetchSecrets, request);
  }

  const std::string token_ = std::string(64, 'a');
  const TempDirForTest temp_;
  EventLoop loop_;
  MemoryStore store_;
  NoSink sink_;
  ControllerRuntime runtime_;
  Authenticator authenticator_{token_, "", SystemClock()};
  RefusalLog refusals_{runtime_, SystemClock()};
  ClientCalls calls_{{loop_, runtime_, authenticator_, refusals_}};
  SecretService service_{{loop_, runtime_, authenticator_, calls_, refusals_},
                         SecretVault(temp_ / "secret-keys", "lab")};
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Stub> stub_;
  std::thread thread_;
};

// The second one dropped the key that the records in the store still named.
TEST_F(SecretServiceTest, ARotationIsRefusedWhileAnotherIsNotStored) {
  SetSecret();
  const std::string before = KeyInMemory();
  OnLoop([this] { store_.Hold(); });
  auto first = std::async(std::launch::async, [this] { return RotateKey(); });
  EXPECT_TRUE(Eventually([&] { return KeyInMemory() != before; }));
  const Status second = RotateKey();
  EXPECT_EQ(second.code(), StatusCode::kFailedPrecondition) << second.ToString();
  EXPECT_THAT(second.message(), HasSubstr("another rotation is under way"));
  EXPECT_THAT(second.message(), HasSubstr("next: "));
  const std::string rotated = KeyInMemory();
  OnLoop([this] { store_.ReleaseHeld(); });
  EXPECT_EQ(first.get(), OkStatus());
  EXPECT_EQ(KeyInMemory(), rotated);
  EXPECT_EQ(RotateKey(), OkStatus()) << "none is under way";
  OnLoop([this] {
    const SecretRecord record = runtime_.controller().Secrets().begin()->second;
    EXPECT_EQ(*SecretVault(temp_ / "secret-keys", "lab").Open(record), "canary");
  });
}

TEST_F(SecretServiceTest, RefusedFetchesCannotPushOutTheAuditTrail) {
  StartJob();
  const auto entries = [this] {
    return Read<std::uint64_t>([this] { return runtime_.controller().audit_entries(); });
  };
  const std::uint64_t before = entries();
  for (int n = 0; n < 1000; ++n)
    ASSERT_EQ(Fetch("elsewhere").code(), StatusCode::kFailedPrecondition);
  EXPECT_GT(entries(), before);
  EXPECT_LT(entries(), before + 100);
  const std::uint64_t refused = entries();
  EXPECT_EQ(Fetch("n1"), OkStatus());
  EXPECT_EQ(entries(), refused + 1) << "one that is answered always has its entry";
}

// With one commit that waits, events wait.
class SlowDiskTest : public SecretServiceTest {
 protected:
  SlowDiskTest() : SecretServiceTest({.held_back = 1}) {}
};

TEST_F(SlowDiskTest, AFetchThatWaitsForTheDiskEndsWithTheCoordinator) {
  StartJob();
  OnLoop([this] {
    store_.Hold();
    runtime_.Handle(RequestNoted{.operation = "Login", .object = "", .status = OkStatus()});
  });
  auto fetch = std::async(std::launch::async, [this] { return Fetch("n1"); });
  EXPECT_TRUE(
      Eventually([this] { return Read<bool>([this] { return runtime_.waiting_events() == 1; }); }));
  OnLoop([this] { runtime_.Close(Unavailable("the end")); });
  EXPECT_EQ(fetch.get().code(), StatusCode::kUnavailable);
  EXPECT_EQ(Fetch("n1").code(), StatusCode::kUnavailable) << "it has ended";
}

}  // namespace
}  // namespace muster
