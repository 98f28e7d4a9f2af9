#include "coordinator/page/page_feeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <optional>

#include "common/base/testing/temp_dir.h"
#include "common/runtime/testing/loop_thread.h"
#include "coordinator/control/testing/control_harness.h"
#include "tests/support/eventually.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

// A connection as slow as a test sets it.
struct FakeStream final : HttpStream {
  bool Send(std::string_view, std::string_view data) override {
    if (!ready()) return false;
    messages.emplace_back(data);
    writing = true;
    return true;
  }
  bool ready() const override { return begun && !writing && !closed; }
  void Listen(std::function<void()> on_ready, std::function<void()> on_gone) override {
    ready_again = std::move(on_ready);
    gone = std::move(on_gone);
  }
  void Close() override { closed = true; }
  // What was sent has arrived; first, the head of the answer.
  void Written() {
    begun = true;
    writing = false;
    ready_again();
  }

  std::vector<std::string> messages;
  bool begun = false;
  bool writing = false;
  bool closed = false;
  std::function<void()> ready_again;
  std::function<void()> gone;
};

class PageFeedsTest : public testing::Test {
 protected:
  PageFeedsTest() {
    feeds_ = std::make_unique<PageFeeds>(
        loop_, PageSources{.controller = cluster_.controller(),
                           .cluster = "lab",
                           .find_job =
                               [this](const std::string& job, auto found) {
                                 const JobId archived = cluster_.controller().FindArchived(job);
                                 if (archived.empty())
                                   return found(cluster_.controller().FindJob(job));
                                 found(ArchivedJobView(cluster_.StoredArchive(archived)).view());
                               },
                           .after_durable =
                               [this](auto done) {
                                 if (hold_) return held_.push_back(std::move(done));
                                 done(durable_);
                               },
                           .now =
                               [this] {
                                 return Now{SystemClock().Now(), cluster_.now().unix_ms};
                               },
                           .read_log =
                               [this](const LogLocation& location, int, std::int64_t offset,
                                      const std::function<void(Result<LogBytes>)>& done) {
                                 EXPECT_TRUE(location.metrics);
                                 done(PieceOfMetrics(offset));
                               }});
    thread_.emplace(loop_);
  }
  ~PageFeedsTest() override {
    OnLoop([this] { feeds_.reset(); });
  }

  void OnLoop(const std::function<void()>& function) { thread_->Do(function); }
  // What a node reads of `metrics_`.
  LogBytes PieceOfMetrics(std::int64_t offset) const {
    const auto size = static_cast<std::int64_t>(metrics_.size());
    const std::int64_t begin = offset < 0 ? std::max<std::int64_t>(0, size + offset) : offset;
    LogBytes piece{.data = metrics_.substr(static_cast<std::size_t>(begin), piece_bytes_)};
    piece.next_offset = begin + static_cast<std::int64_t>(piece.data.size());
    piece.at_end = piece.next_offset >= size;
    return piece;
  }
  std::shared_ptr<FakeStream> Open(const JobId& job = {}, const HttpRequest& request = {},
                                   const PageViewer& viewer = {}) {
    auto stream = std::make_shared<FakeStream>();
    OnLoop([&] {
      feeds_->Add(job, viewer, request, stream);
      stream->Written();
    });
    return stream;
  }
  void Step(int step) {
    OnLoop([&] {
      cluster_.StepTo(cluster_.id, step);
      feeds_->OnJobsChanged({cluster_.id});
    });
  }
  std::size_t Messages(const std::shared_ptr<FakeStream>& stream) {
    std::size_t messages = 0;
    OnLoop([&] { messages = stream->messages.size(); });
    return messages;
  }
  bool Gets(const std::shared_ptr<FakeStream>& stream, std::size_t messages) {
    return Eventually([&] { return Messages(stream) >= messages; });
  }

  RunningJob cluster_;
  EventLoop loop_;
  std::unique_ptr<PageFeeds> feeds_;
  bool hold_ = false;
  Status durable_;
  std::vector<std::function<void(const Status&)>> held_;
  std::string metrics_;
  std::size_t piece_bytes_ = 40;
  std::optional<LoopThreadForTest> thread_;
};

TEST_F(PageFeedsTest, AViewerGetsAllAtOnceAndThenWhatChanges) {
  const auto stream = Open();
  ASSERT_EQ(Messages(stream), 1u);
  EXPECT_THAT(stream->messages[0], HasSubstr("\"node/n1\""));
  Step(13);
  OnLoop([&] { stream->Written(); });
  ASSERT_TRUE(Gets(stream, 2));
  EXPECT_THAT(stream->messages[1], HasSubstr("\"step\":13"));
  EXPECT_THAT(stream->messages[1], Not(HasSubstr("\"node/n1\"")));
}

TEST_F(PageFeedsTest, ASlowViewerSkipsStatesAndDelaysNoOther) {
  const auto slow = Open();
  const auto quick = Open();
  ASSERT_EQ(Messages(slow), 1u);
  for (int step = 13; step < 16; ++step) {
    const std::size_t before = Messages(quick);
    OnLoop([&] { quick->Written(); });
    Step(step);
    ASSERT_TRUE(Gets(quick, before + 1));
  }
  EXPECT_EQ(Messages(slow), 1u);
  OnLoop([&] { slow->Written(); });
  ASSERT_EQ(Messages(slow), 2u);
  EXPECT_THAT(slow->messages[1], HasSubstr("\"step\":15"));
  EXPECT_THAT(slow->messages[1], Not(HasSubstr("\"step\":14")));
}

TEST_F(PageFeedsTest, NothingIsSentThatIsNotDurable) {
  hold_ = true;
  const auto stream = Open();
  EXPECT_EQ(Messages(stream), 0u);
  OnLoop([&] { held_[0](OkStatus()); });
  EXPECT_EQ(Messages(stream), 1u);
}

TEST_F(PageFeedsTest, WhatCouldNotBeStoredIsNotSent) {
  durable_ = Unavailable("the disk is full");
  const auto stream = Open();
  OnLoop([&] {
    EXPECT_TRUE(stream->closed);
    EXPECT_EQ(feeds_->viewers(), 0u);
  });
  EXPECT_EQ(Messages(stream), 0u);
}

TEST_F(PageFeedsTest, AViewerThatMayNotReadAnyLongerReceivesNothing) {
  bool revoked = false;
  HttpRequest request;
  request.recheck = [&] { return revoked ? PermissionDenied("revoked") : OkStatus(); };
  const auto stream = Open({}, request);
  ASSERT_EQ(Messages(stream), 1u);
  OnLoop([&] {
    revoked = true;
    stream->Written();
  });
  Step(13);
  EXPECT_TRUE(Eventually([&] {
    bool closed = false;
    OnLoop([&] { closed = stream->closed; });
    return closed;
  }));
  EXPECT_EQ(Messages(stream), 1u);
  OnLoop([&] { EXPECT_EQ(feeds_->viewers(), 0u); });
}

// A stream that had nothing to send went on although its viewer had signed out.
TEST_F(PageFeedsTest, AViewerThatMayNotReadAnyLongerIsGoneThoughNothingChanges) {
  bool signed_out = false;
  HttpRequest request;
  request.recheck = [&] { return signed_out ? PermissionDenied("signed out") : OkStatus(); };
  const auto stream = Open({}, request);
  ASSERT_EQ(Messages(stream), 1u);
  OnLoop([&] { signed_out = true; });
  EXPECT_TRUE(Eventually([&] {
    bool closed = false;
    OnLoop([&] { closed = stream->closed; });
    return closed;
  }));
}

TEST_F(PageFeedsTest, AnOverviewOfAUserIsOfThatUserAlone) {
  const PageViewer sees_nothing{"ada", [](const JobRecord&) { return false; }};
  const auto ada = Open({}, {}, sees_nothing);
  const auto all = Open();
  const auto again = Open({}, {}, sees_nothing);
  const std::string job = "\"job/" + cluster_.id.value + "\"";
  EXPECT_THAT(ada->messages.at(0), Not(HasSubstr(job)));
  EXPECT_THAT(again->messages.at(0), Not(HasSubstr(job)));
  ASSERT_TRUE(Gets(all, 1));
  EXPECT_THAT(all->messages.at(0), HasSubstr(job));
}

TEST_F(PageFeedsTest, AJobsPageIsForgottenWithItsLastViewer) {
  const auto first = Open(cluster_.id);
  const auto second = Open(cluster_.id);
  EXPECT_THAT(first->messages.at(0), HasSubstr("\"attempt/1\""));
  EXPECT_THAT(second->messages.at(0), HasSubstr("\"attempt/1\""));
  OnLoop([&] { first->gone(); });
  Step(13);
  OnLoop([&] { second->Written(); });
  ASSERT_TRUE(Gets(second, 2));
  OnLoop([&] {
    second->gone();
    EXPECT_EQ(feeds_->viewers(), 0u);
  });
  const auto third = Open(cluster_.id);
  EXPECT_THAT(third->messages.at(0), HasSubstr("\"whole\":true"));
}

TEST_F(PageFeedsTest, EarlierStepsAreReadFromTheJobsMetrics) {
  const TempDirForTest dir;
  OnLoop([&] {
    // The harness's record contains the path; a test may write there.
    const_cast<JobRecord*>(cluster_.Job(cluster_.id).record)->output_dir = dir.path();
  });
  std::ofstream(dir / "metrics.jsonl") << "{\"step\": 1, \"loss\": 7.25, \"generation\": 1}\n";
  const auto stream = Open(cluster_.id);
  OnLoop([&] { stream->Written(); });
  ASSERT_TRUE(Gets(stream, 2));
  EXPECT_THAT(stream->messages[1], HasSubstr("\"cell/0\",[1,1,[7.25,7.25,7.25]"));
}

// A user's folder may hold a link to any file that the coordinator's account can read.
TEST_F(PageFeedsTest, InAClusterWithUsersANodeReadsTheJobsMetrics) {
  const TempDirForTest dir;
  std::ofstream(dir / "metrics.jsonl") << "{\"step\": 1, \"loss\": 7.25, \"generation\": 1}\n";
  for (int step = 1; step <= 10; ++step)
    metrics_ += "{\"step\": " + std::to_string(step) + ", \"loss\": " + std::to_string(step) +
                ".5, \"generation\": 1}\n";
  OnLoop([&] {
    ASSERT_TRUE(cluster_.ApplyUsers("users: {ada: }\nroles: []\n").status.ok());
    const_cast<JobRecord*>(cluster_.Job(cluster_.id).record)->output_dir = dir.path();
  });
  const auto stream = Open(cluster_.id);
  // The node answers at once here, so the first message has it.
  ASSERT_TRUE(Gets(stream, 1));
  EXPECT_THAT(stream->messages[0], HasSubstr("\"cell/0\",[1,1,[1.5,1.5,1.5]"));
  EXPECT_THAT(stream->messages[0], HasSubstr("\"cell/9\",[10,10,[10.5,10.5,10.5]"));
}

// As OfALargeFileEquallySpacedPiecesAreRead, through a node.
TEST_F(PageFeedsTest, OfLargeMetricsANodeReadsEquallySpacedPieces) {
  piece_bytes_ = 256 << 10;
  std::int64_t last = 0;
  while (metrics_.size() < (20u << 20))
    metrics_ += "{\"step\": " + std::to_string(++last) + ", \"loss\": 1, \"generation\": 1}" +
                std::string(200, ' ') + "\n";
  std::optional<StepCurves> read;
  const LogSource source = [&](const LogLocation&, int, std::int64_t offset, const auto& done) {
    done(PieceOfMetrics(offset));
  };
  ReadMetricsAt(source, {}, [&read](StepCurves curves) { read = std::move(curves); });
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->cells().front().first, 1);
  EXPECT_EQ(read->last_step(), last);
}

TEST_F(PageFeedsTest, AllViewersAreDisconnectedAtTheEnd) {
  const auto stream = Open();
  OnLoop([&] {
    feeds_->CloseAll();
    EXPECT_TRUE(stream->closed);
  });
  Step(13);
  EXPECT_EQ(Messages(stream), 1u);
}

}  // namespace
}  // namespace muster
