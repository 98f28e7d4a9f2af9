#include "worker/allocation/job_client.h"

#include <gtest/gtest.h>

#include "tests/support/eventually.h"

namespace muster::worker {
namespace {

// A call's end comes on a thread of gRPC's, at any time.
TEST(JobClient, ItsLoopMayEndBeforeItsCalls) {
  auto loop = std::make_unique<EventLoop>();
  Endpoint nobody;
  nobody.grpc = "127.0.0.1:1";
  auto client = std::make_unique<JobClient>(*loop, nobody, "token");
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> call = held;
  client->Get("job", [held](const Result<JobPicture>&) { ADD_FAILURE() << "told"; });
  held.reset();
  client.reset();
  loop.reset();
  EXPECT_TRUE(Eventually([&] { return call.expired(); }, std::chrono::seconds(50)));
}

TEST(JobClient, ACoordinatorThatIsNotThereIsAnErrorOnTheLoop) {
  EventLoop loop;
  Endpoint nobody;
  nobody.grpc = "127.0.0.1:1";
  JobClient client(loop, nobody, "token");
  StatusCode code = StatusCode::kOk;
  client.ListNodes([&](const Result<std::vector<NodePicture>>& nodes) {
    code = nodes.status().code();
    loop.Stop();
  });
  loop.Run();
  EXPECT_EQ(code, StatusCode::kUnavailable);
}

}  // namespace
}  // namespace muster::worker
