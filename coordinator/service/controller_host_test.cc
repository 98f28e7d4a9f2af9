#include "coordinator/service/controller_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/store/memory_store.h"

namespace muster {
namespace {

using ::testing::Contains;
using ::testing::Not;

constexpr char kSpec[] =
    "name: a\n"
    "workdir: /tmp/muster-never-written\n"
    "resources: {nodes: 1, ranks_per_node: 1}\n"
    "command: [/bin/true]\n";

// Keeps what is released.
struct RecordingOutlet : EffectOutlet {
  void SendToWorker(const WorkerSend& send) override { sends.push_back(send); }
  void CloseWorker(const CloseSession& close) override { closes.push_back(close); }
  void OnJobsChanged(const std::vector<JobId>& jobs) override { changes += jobs.size(); }
  void OnEvents(const std::vector<EventRecord>& news) override {
    for (const EventRecord& event : news) events.push_back(event.kind);
  }
  void OnObservation(const Observation&) override {}
  void OnStoreFailed(const Status& status) override { failure = status; }

  template <typename Message>
  int CountSends() const {
    int count = 0;
    for (const WorkerSend& send : sends) count += std::holds_alternative<Message>(send.message);
    return count;
  }
  std::vector<WorkerSend> sends;
  std::vector<CloseSession> closes;
  std::vector<std::string> events;
  std::size_t changes = 0;
  Status failure;
};

class ControllerHostTest : public ::testing::Test {
 protected:
  ControllerHostTest() : thread_([this] { loop_.Run(); }) {
    OnLoop([this] { ASSERT_TRUE(host_.Restore().ok()); });
    OnLoop([this] { host_.Handle(HelloOf("n1")); });
  }
  ~ControllerHostTest() override {
    OnLoop([this] { host_.Close(Unavailable("end of the test")); });
    loop_.Stop();
    thread_.join();
  }

  // Runs `function` on the loop, and then everything that it posted.
  void OnLoop(const std::function<void()>& function) {
    std::promise<void> done;
    loop_.Post([&] {
      function();
      loop_.Post([&] { done.set_value(); });
    });
    done.get_future().get();
  }
  static WorkerHello HelloOf(const std::string& node) {
    WorkerHello event;
    event.session = 7;
    event.hello.protocol_version = 1;
    event.hello.node = NodeName{node};
    event.hello.address = "127.0.0.1";
    event.hello.host_id = "host";
    event.hello.slots = 1;
    event.hello.instance = "i";
    return event;
  }
  void Submit(const std::string& id, const std::string& key) {
    host_.Submit({0, kSpec, key, JobId{id}},
                 [this](const Reply& reply) { replies_.push_back(reply); });
  }

  EventLoop loop_;
  MemoryStore store_;
  RecordingOutlet outlet_;
  ControllerHost host_{loop_, store_, outlet_, ControllerOptions{}, SystemClock()};
  std::vector<Reply> replies_;
  std::thread thread_;
};

TEST_F(ControllerHostTest, NothingIsToldBeforeItIsDurable) {
  OnLoop([this] {
    store_.Hold();
    Submit("0000000001", "");
  });
  OnLoop([this] {
    EXPECT_TRUE(replies_.empty());
    EXPECT_EQ(outlet_.CountSends<Prepare>(), 0);
    EXPECT_THAT(outlet_.events, Not(Contains("submitted")));
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_TRUE(replies_[0].status.ok()) << replies_[0].status.ToString();
    EXPECT_THAT(outlet_.events, Contains("submitted"));
    EXPECT_EQ(outlet_.CountSends<Prepare>(), 1);
    EXPECT_GT(outlet_.changes, 0u);
  });
}

TEST_F(ControllerHostTest, ARepeatedSubmitIsAcknowledgedAfterTheCommitOfTheFirst) {
  OnLoop([this] {
    store_.Hold();
    Submit("0000000001", "key");
    Submit("0000000002", "key");
  });
  OnLoop([this] {
    EXPECT_TRUE(replies_.empty());
    store_.ReleaseHeld();
  });
  OnLoop([this] {
    ASSERT_EQ(replies_.size(), 2u);
    EXPECT_EQ(std::get<SubmitAccepted>(replies_[1].body).id.value, "0000000001");
    EXPECT_TRUE(std::get<SubmitAccepted>(replies_[1].body).existed);
  });
}

TEST_F(ControllerHostTest, AQueryWaitsForWhatItSaw) {
  std::vector<Status> told;
  OnLoop([&] {
    store_.Hold();
    Submit("0000000001", "");
    EXPECT_TRUE(host_.controller().FindJob("0000000001").ok());
    host_.AfterDurable([&](const Status& status) { told.push_back(status); });
  });
  OnLoop([&] {
    EXPECT_TRUE(told.empty());
    store_.ReleaseHeld();
  });
  OnLoop([&] {
    ASSERT_EQ(told.size(), 1u);
    EXPECT_TRUE(told[0].ok());
    host_.AfterDurable([&](const Status& status) { told.push_back(status); });
    EXPECT_EQ(told.size(), 2u) << "nothing is pending, so it need not wait";
  });
}

TEST_F(ControllerHostTest, AFailedCommitReleasesNothingAndAsksForTheEnd) {
  Status told;
  OnLoop([&] {
    store_.FailNext(ResourceExhausted("disk full"));
    Submit("0000000001", "");
    host_.AfterDurable([&](const Status& status) { told = status; });
  });
  OnLoop([&] {
    EXPECT_EQ(outlet_.failure.code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(outlet_.CountSends<Prepare>(), 0);
    EXPECT_TRUE(replies_.empty());
    host_.Close(Unavailable("the disk is full"));
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(told.code(), StatusCode::kUnavailable);
  });
}

TEST_F(ControllerHostTest, AfterClosingRequestsAreRefused) {
  OnLoop([this] {
    host_.Close(Unavailable("closing"));
    Submit("0000000001", "");
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kUnavailable);
    EXPECT_EQ(host_.refused_requests(), 1u);
  });
}

TEST_F(ControllerHostTest, RequestsThatWaitAreBounded) {
  OnLoop([this] {
    store_.Hold();
    for (std::size_t i = 0; i < ControllerHost::kMaxPendingRequests; ++i) {
      Submit("0000000001", "same key");
    }
    EXPECT_TRUE(replies_.empty());
    Submit("0000000002", "same key");
    ASSERT_EQ(replies_.size(), 1u);
    EXPECT_EQ(replies_[0].status.code(), StatusCode::kResourceExhausted);
    store_.ReleaseHeld();
  });
}

}  // namespace
}  // namespace muster
