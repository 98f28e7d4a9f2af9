#include "coordinator/store/commit_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

namespace muster {
namespace {

using ::testing::ElementsAre;

// Has events without end; the first page is read for as long as the test wants.
class EndlessEvents : public CommitBackend {
 public:
  Status WriteGroup(const std::vector<CommitBatch>&) override { return OkStatus(); }
  Result<std::vector<ArchivedRecords>> SelectArchived(const ArchiveQuery&) override {
    return std::vector<ArchivedRecords>{};
  }
  Result<std::vector<std::string>> SelectAudit(const AuditQuery&) override {
    return std::vector<std::string>{};
  }
  Result<std::vector<EventRecord>> SelectEvents(const EventQuery& query) override {
    if (calls.empty()) {
      reading_.set_value();
      go_on_.get_future().get();
    }
    calls.push_back("page");
    std::vector<EventRecord> events(static_cast<std::size_t>(query.limit));
    for (std::uint64_t seq = query.after_seq; EventRecord & event : events) event.seq = ++seq;
    return events;
  }
  void AwaitReading() { reading_.get_future().get(); }
  void GoOn() { go_on_.set_value(); }

  std::vector<std::string> calls;  // of the queue's thread

 private:
  std::promise<void> reading_;
  std::promise<void> go_on_;
};

// All that was asked for was read at once, and a commit waited for that.
TEST(CommitQueueTest, ACommitWaitsForOnePageOfALongRead) {
  EndlessEvents events;
  std::promise<std::vector<EventRecord>> read;
  {
    CommitQueue queue(events, {.path = "nowhere"});
    queue.Start();
    queue.ReadEvents({.limit = 2 * CommitQueue::kPageEvents + 1}, [&](auto found) {
      events.calls.push_back("read");
      read.set_value(*std::move(found));
    });
    events.AwaitReading();
    queue.Commit({}, [&](const Status& status) {
      events.calls.push_back(status.ok() ? "committed" : "failed");
    });
    events.GoOn();
  }
  EXPECT_THAT(events.calls, ElementsAre("page", "committed", "page", "page", "read"));
  const std::vector<EventRecord> found = read.get_future().get();
  ASSERT_EQ(found.size(), 2u * CommitQueue::kPageEvents + 1);
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i].seq, i + 1);
}

}  // namespace
}  // namespace muster
