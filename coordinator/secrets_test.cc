// Who is given secrets, at a real coordinator.

#include <gtest/gtest.h>

#include "muster/v1/secret_api.grpc.pb.h"
#include "tests/support/coordinator_harness.h"

namespace muster {
namespace {

class SecretsTest : public ServerTest {
 protected:
  Status Fetch(const std::string& job, const std::string& node, std::int64_t generation = 1) {
    v1::FetchSecretsRequest request;
    request.set_job(job);
    request.set_generation(generation);
    request.set_node(node);
    v1::FetchSecretsResponse response;
    const auto stub = v1::Secrets::NewStub(OpenChannel(server_->endpoint().grpc));
    return FromGrpcStatus(stub->FetchSecrets(Context().get(), request, &response));
  }
};

TEST_F(SecretsTest, ANodeGetsThemWhileItRunsTheJobAndNotAfterwards) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("tiny", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  EXPECT_EQ(Fetch(job, "n1"), OkStatus());
  EXPECT_EQ(Fetch(job, "n2").code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Fetch(job, "n1", 2).code(), StatusCode::kFailedPrecondition);
  n1->FinishJob(job);
  WaitForState(job, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(Fetch(job, "n1").code(), StatusCode::kFailedPrecondition);
}

TEST_F(SecretsTest, ANodeGetsNoneForASuspendedJob) {
  StartServer();
  const auto n1 = Worker({.node = "n1"});
  const std::string job = SubmitId(Spec("tiny", 1));
  WaitForState(job, v1::JOB_STATE_RUNNING);
  v1::SuspendRequest request;
  request.set_job(job);
  v1::SuspendResponse response;
  ASSERT_TRUE(Call(&v1::Client::Stub::Suspend, request, &response).ok());
  ASSERT_TRUE(n1->WaitFor([](const v1::CoordinatorMessage& m) { return m.has_stop(); }));
  n1->FinishJob(job);
  WaitForState(job, v1::JOB_STATE_SUSPENDED);
  EXPECT_EQ(Fetch(job, "n1").code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace muster
