// A worker and coordinators that replace each other, as real processes and streams.

#include <fcntl.h>
#include <sys/stat.h>

#include "worker/service/testing/worker_fixture.h"

namespace muster::worker {
namespace {

class WorkerEpochTest : public WorkerTest {
 protected:
  // The one before is gone, and the endpoint file names this one.
  void StartCoordinator(std::uint64_t epoch) {
    coordinator_.reset();
    coordinator_ = std::make_unique<FakeCoordinatorForTest>(
        dir_.path(), FakeCoordinatorForTest::Options{.epoch = epoch});
  }
  std::string EpochMet() const {
    const auto text = ReadFile(ClusterPaths{dir_.path()}.EpochMet("n0"));
    return text.ok() ? *text : "none";
  }
};

TEST_F(WorkerEpochTest, AnOlderCoordinatorIsNotObeyedAndItsSuccessorIsFound) {
  AwaitHello();
  EXPECT_EQ(EpochMet(), "none") << "a coordinator without a journal has no epoch";
  StartCoordinator(3);
  AwaitHello();
  ASSERT_TRUE(Eventually([this] { return EpochMet() == "3\n"; }));
  StartCoordinator(2);
  AwaitHello();
  // The stream was ended and begun again.
  AwaitHello();
  EXPECT_EQ(EpochMet(), "3\n");
  StartCoordinator(4);
  AwaitHello();
  EXPECT_EQ(RunJob(1, "true").rank(), 0);
  EXPECT_EQ(EpochMet(), "4\n");
}

// As after a network was cut in two: nothing breaks the stream to the older one.
TEST_F(WorkerEpochTest, AReplacedCoordinatorThatLivesOnIsLeft) {
  StartCoordinator(3);
  AwaitHello();
  const auto replaced = std::move(coordinator_);
  StartCoordinator(4);
  AwaitHello();
  EXPECT_TRUE(Eventually([this] { return EpochMet() == "4\n"; }));
}

TEST_F(WorkerEpochTest, AWorkerThatWasStartedAgainStillRefusesAnOlderCoordinator) {
  StartCoordinator(3);
  AwaitHello();
  ASSERT_TRUE(Eventually([this] { return EpochMet() == "3\n"; }));
  KillWorker();
  StartCoordinator(2);
  StartWorker();
  AwaitHello();
  AwaitHello();
  EXPECT_EQ(EpochMet(), "3\n");
  StartCoordinator(3);
  AwaitHello();
  EXPECT_EQ(RunJob(1, "true").rank(), 0);
}

TEST_F(WorkerEpochTest, AnEndpointFileOnHungStorageDoesNotStopHeartbeats) {
  AwaitHello();
  const std::string endpoint = ClusterPaths{dir_.path()}.Endpoint();
  const std::string text = ReadFile(endpoint).value();
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  std::filesystem::rename(dir_ / "pipe", endpoint);
  // There is a reader, which waits for what is written as long as this end is open.
  UniqueFd writer;
  ASSERT_TRUE(Eventually([&] {
    writer.reset(::open(endpoint.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
    return writer.valid();
  }));
  std::ofstream(dir_ / "file") << text;
  std::filesystem::rename(dir_ / "file", endpoint);
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(coordinator_->Await([](const auto& m) { return m.has_heartbeat(); })) << i;
}

}  // namespace
}  // namespace muster::worker
