// Coordinators of several directories, as of several nodes, over one journal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <utility>

#include "common/base/files.h"
#include "common/rpc/endpoint.h"
#include "tests/support/coordinator_harness.h"

namespace muster {
namespace {

using ::testing::HasSubstr;

// Another node's coordinator, with a loop's thread of its own.
class OtherCoordinator {
 public:
  explicit OtherCoordinator(ServerOptions options) {
    auto server = Server::Start(std::move(options));
    EXPECT_TRUE(server.ok()) << server.status().ToString();
    if (!server.ok()) return;
    server_ = *std::move(server);
    thread_ = std::thread([this] { outcome_ = server_->Run(); });
  }
  ~OtherCoordinator() {
    if (!server_) return;
    server_->Stop();
    thread_.join();
  }
  Server& server() { return *server_; }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
  Status outcome_;
};

class ServerJournalTest : public ServerTest {
 protected:
  ServerOptions JournalOptions(const std::string& node) const {
    ServerOptions options = Options();
    options.dir = dir_ + "/" + node;
    options.listen = "unix:" + dir_ + "/" + node + ".sock";
    options.journal = dir_ + "/journal";
    EXPECT_TRUE(MakeDirectories(options.dir).ok());
    return options;
  }
  // The harness looks for the token in its own directory.
  void StartWithJournal(const std::string& node) {
    const ServerOptions options = JournalOptions(node);
    const std::string root = std::exchange(dir_, options.dir);
    StartServer(options);
    dir_ = root;
  }
};

TEST_F(ServerJournalTest, ACoordinatorOfAnotherNodeTakesOverTheJobs) {
  StartWithJournal("n1");
  EXPECT_EQ(server_->endpoint().epoch, 1u);
  const std::string job = SubmitId(Spec("kept", 1));

  OtherCoordinator other(JournalOptions("n2"));
  EXPECT_EQ(ReadEndpoint(ClusterPaths{dir_ + "/n2"}.Endpoint())->epoch, 2u);
  // The older one has nothing to commit, and ends all the same.
  thread_.join();
  EXPECT_EQ(outcome_.code(), StatusCode::kAborted) << outcome_.ToString();
  EXPECT_THAT(outcome_.message(), HasSubstr("epoch 2 on node"));
  EXPECT_EQ(ExitCodeOf(outcome_), kExitTakenOver);
  server_.reset();

  token_ = *LoadToken(ClusterPaths{dir_ + "/n2"}.Token());
  client_ = v1::Client::NewStub(OpenChannel(other.server().endpoint().grpc));
  const auto found = Get(job);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  EXPECT_EQ(found->name(), "kept");
  FakeWorker worker(other.server().endpoint().grpc, token_, {.node = "w1"});
  ASSERT_TRUE(worker.Connect().ok());
  EXPECT_TRUE(worker.WaitFor(
      [](const v1::CoordinatorMessage& m) { return m.has_welcome() && m.welcome().epoch() == 2; }));
  EXPECT_TRUE(worker.WaitForLaunch(job));
}

TEST_F(ServerJournalTest, UsageContinuesWithAnotherCoordinator) {
  const auto queue_seconds = [](const v1::Goodput& goodput) {
    for (const v1::TimeShare& share : goodput.states())
      if (share.state() == "queue") return share.seconds();
    return -1.0;
  };
  StartWithJournal("n1");
  const TimePoint begin = SystemClock().Now();
  const std::string job = SubmitId(Spec("waits", 3));
  const double before = queue_seconds(Get(job)->goodput());
  EXPECT_GE(before, 0);

  OtherCoordinator other(JournalOptions("n2"));
  thread_.join();
  server_.reset();
  token_ = *LoadToken(ClusterPaths{dir_ + "/n2"}.Token());
  client_ = v1::Client::NewStub(OpenChannel(other.server().endpoint().grpc));
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(&v1::Client::Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  const double after = queue_seconds(jobs.jobs(0).goodput());
  EXPECT_GT(after, before);
  EXPECT_LE(after, 3 * ToSeconds(SystemClock().Now() - begin) + 0.01);
  EXPECT_DOUBLE_EQ(queue_seconds(jobs.cluster()), after) << "there is no other job";
}

TEST_F(ServerJournalTest, AFencedCoordinatorAcknowledgesNothing) {
  StartWithJournal("n1");
  ASSERT_TRUE(Submit(Spec("first", 1)).ok());
  OtherCoordinator other(JournalOptions("n2"));
  const auto refused = Submit(Spec("late", 1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kUnavailable) << refused.status().ToString();
  thread_.join();
  EXPECT_EQ(ExitCodeOf(outcome_), kExitTakenOver) << outcome_.ToString();
  server_.reset();
  token_ = *LoadToken(ClusterPaths{dir_ + "/n2"}.Token());
  client_ = v1::Client::NewStub(OpenChannel(other.server().endpoint().grpc));
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(&v1::Client::Stub::ListJobs, v1::ListJobsRequest(), &jobs).ok());
  ASSERT_EQ(jobs.jobs_size(), 1);
  EXPECT_EQ(jobs.jobs(0).name(), "first");
}

TEST_F(ServerJournalTest, ADamagedJournalEndsTheStartWithTheFile) {
  StartWithJournal("n1");
  StopServer();
  const std::string first = dir_ + "/journal/log/0000000000000001";
  ASSERT_TRUE(WriteFileAtomically(first, "not a commit").ok());
  const auto server = Server::Start(JournalOptions("n2"));
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(ExitCodeOf(server.status()), kExitFailed);
  EXPECT_THAT(server.status().message(), HasSubstr(first));
}

TEST_F(ServerJournalTest, WithoutAJournalThereIsNoEpoch) {
  StartServer();
  EXPECT_EQ(server_->endpoint().epoch, 0u);
  const auto worker = Worker({.node = "w1"});
  EXPECT_TRUE(worker->WaitFor(
      [](const v1::CoordinatorMessage& m) { return m.has_welcome() && m.welcome().epoch() == 0; }));
}

}  // namespace
}  // namespace muster
