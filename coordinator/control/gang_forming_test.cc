// The work of forming a gang grows with its nodes and not with their square: what the controller
// stores, sends and computes for one gang over all nodes of a cluster, and of one four times as
// large.

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "common/job_spec/parse.h"
#include "coordinator/control/controller.h"
#include "coordinator/control/testing/gang_cluster.h"

namespace muster {
namespace {

constexpr int kRanksOfANode = 8;
constexpr int kNodes = 400;
constexpr int kTimes = 4;

double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Work {
  std::size_t messages = 0;
  std::size_t operations = 0;    // of the store
  std::size_t stored_ranks = 0;  // in them: an attempt is stored with all its ranks
  double cpu_seconds = 0;
};

class Cluster {
 public:
  explicit Cluster(int nodes) : nodes_(nodes) {
    controller_.Restore({}, kNow);
    for (int n = 0; n < nodes_; ++n)
      Handle(WorkerHello{SessionOf(n), HelloOfNode(n, kRanksOfANode)});
    work_ = {};
  }

  // From the submission until every rank has finished a first step.
  Work FormGang() {
    const std::string yaml = GangYaml(nodes_, kRanksOfANode);
    Handle(SubmitRequested{
        .request = 1, .spec_yaml = yaml, .new_id = kJob, .spec = ParseJobSpec(yaml)});
    // The gang's nodes are the cluster's, the first by name first.
    for (int n = 0; n < nodes_; ++n)
      Deliver(n, Prepared{.job = kJob, .generation = 1, .master_port = 29500});
    for (int rank = 0; rank < nodes_ * kRanksOfANode; ++rank)
      Deliver(rank / kRanksOfANode,
              RankStarted{.job = kJob, .generation = 1, .rank = rank, .pid = 1000 + rank});
    ReportAll(Formed{});
    ReportAll(Resumed{.step = 0, .from = "start"});
    ReportAll(FirstStep{.step = 1});
    EXPECT_EQ(controller_.Jobs().front().record->state, JobState::kRunning);
    return work_;
  }

 private:
  static constexpr Now kNow{TimePoint(std::chrono::hours(1)), 3'600'000};
  inline static const JobId kJob{"0123456789"};

  static SessionId SessionOf(int n) { return static_cast<SessionId>(n) + 1; }

  template <typename Body>
  void ReportAll(Body body) {
    for (int rank = 0; rank < nodes_ * kRanksOfANode; ++rank)
      Deliver(rank / kRanksOfANode,
              TrainerReport{.job = kJob, .generation = 1, .rank = rank, .body = body});
  }
  void Deliver(int n, WorkerMessage message) {
    Handle(WorkerMessageReceived{SessionOf(n), std::move(message)});
  }
  void Handle(const Event& event) {
    const double before = ThreadCpuSeconds();
    const Effects effects = controller_.Handle(event, kNow);
    work_.cpu_seconds += ThreadCpuSeconds() - before;
    work_.messages += effects.sends.size();
    work_.operations += effects.store.size();
    for (const StoreOperation& operation : effects.store)
      if (const auto* put = std::get_if<PutAttempt>(&operation))
        work_.stored_ranks += put->attempt.ranks.size();
  }

  const int nodes_;
  Controller controller_{ControllerOptions{}};
  Work work_;
};

TEST(GangFormingTest, StoredAndSentGrowWithTheNodes) {
  const Work small = Cluster(kNodes).FormGang();
  const Work large = Cluster(kNodes * kTimes).FormGang();
  EXPECT_EQ(small.messages, 2u * kNodes);  // Prepare and Launch
  EXPECT_LE(large.messages, kTimes * small.messages);
  EXPECT_LE(large.operations, kTimes * small.operations);
  EXPECT_LE(large.stored_ranks, kTimes * small.stored_ranks);
}

// The least of three, since other programs cost the processor's caches. With the square it would be
// 16 times as much.
TEST(GangFormingTest, ProcessorTimeGrowsWithTheNodes) {
  const auto least = [](int nodes) {
    double seconds = Cluster(nodes).FormGang().cpu_seconds;
    for (int i = 0; i < 2; ++i) seconds = std::min(seconds, Cluster(nodes).FormGang().cpu_seconds);
    return seconds;
  };
  EXPECT_LT(least(kNodes * kTimes), 2.5 * kTimes * least(kNodes));
}

}  // namespace
}  // namespace muster
