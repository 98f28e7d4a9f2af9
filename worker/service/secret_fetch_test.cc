#include "worker/service/secret_fetch.h"

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "common/base/testing/temp_dir.h"
#include "common/rpc/endpoint.h"
#include "common/rpc/token.h"
#include "muster/v1/secret_api.grpc.pb.h"

namespace muster::worker {
namespace {

// Refuses the first fetches, and then answers.
struct FakeSecrets : v1::Secrets::Service {
  grpc::Status FetchSecrets(grpc::ServerContext*, const v1::FetchSecretsRequest* request,
                            v1::FetchSecretsResponse* response) override {
    if (asked++ < refusals) return {refuses_with, "refused"};
    v1::SecretValue& secret = *response->add_secrets();
    secret.set_variable("OF_" + request->node());
    secret.set_value(request->job());
    return grpc::Status::OK;
  }

  grpc::StatusCode refuses_with = grpc::StatusCode::UNAVAILABLE;
  int refusals = 0;
  std::atomic<int> asked = 0;
};

class SecretFetchTest : public testing::Test {
 protected:
  Result<RankSecrets> Fetch() {
    return FetchSecretsOf(
        {.endpoint_path = dir_.path() + "/endpoint.json",
         .coordinators = std::make_shared<CoordinatorAddresses>(std::vector<std::string>{}),
         .token_path = dir_.path() + "/token",
         .identity = {.node = {"n1"}}},
        {"job"}, 1);
  }
  void Listen() {
    grpc::ServerBuilder builder;
    const std::string address = "unix:" + dir_.path() + "/socket";
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&secrets_);
    server_ = builder.BuildAndStart();
    ASSERT_TRUE(LoadOrCreateToken(dir_.path() + "/token").ok());
    ASSERT_TRUE(WriteEndpoint(dir_.path() + "/endpoint.json", {.grpc = address}).ok());
  }
  void TearDown() override {
    if (server_) server_->Shutdown();
  }

  TempDirForTest dir_;
  FakeSecrets secrets_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(SecretFetchTest, ACoordinatorThatDiesDuringAFetchIsAskedAgain) {
  secrets_.refusals = 2;
  Listen();
  const auto fetched = Fetch();
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_EQ(fetched->variables, (std::map<std::string, std::string>{{"OF_n1", "job"}}));
  EXPECT_EQ(secrets_.asked, 3);
}

TEST_F(SecretFetchTest, ARefusalIsFinal) {
  secrets_.refusals = 1;
  secrets_.refuses_with = grpc::StatusCode::FAILED_PRECONDITION;
  Listen();
  EXPECT_EQ(Fetch().status().code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(secrets_.asked, 1);
}

}  // namespace
}  // namespace muster::worker
