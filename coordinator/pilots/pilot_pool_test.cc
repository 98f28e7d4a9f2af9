#include "coordinator/pilots/pilot_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "common/base/json.h"

namespace muster {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using Counts = std::map<std::string, int>;

// The edges of a PilotPool by hand: blocking effects wait in `waiting` until they are answered.
class PoolHarness {
 public:
  explicit PoolHarness(const std::string& config = "max_nodes: 4\n") : config_(config) {
    PollResult();  // reads the file
    PollResult();  // opens and loads
    PollResult();  // lists
  }

  // A second later: one look, answered at once.
  void PollResult() {
    now_.mono += 1s;
    now_.unix_ms += 1000;
    const auto asked = Feed(PoolLookDue{});
    PoolLooked looked;
    looked.config = config_;
    if (asked->load) looked.loaded = left_behind;
    if (asked->list) looked.jobs = jobs;
    looked.facts = facts;
    Feed(std::move(looked));
  }
  // Looks until Slurm was asked.
  void LookAtSlurm() {
    for (int n = 0; n < 15; ++n) PollResult();
  }

  std::optional<LookAtPool> Feed(const PoolEvent& event) {
    std::optional<LookAtPool> look;
    for (PoolEffect& effect : pool_.Handle(event, now_)) {
      if (const auto* asked = std::get_if<LookAtPool>(&effect)) {
        look = *asked;
      } else if (const auto* status = std::get_if<WritePoolStatus>(&effect)) {
        status_ = status->text;
        Feed(PoolStatusWritten{});
      } else if (const auto* note = std::get_if<ClusterNote>(&effect)) {
        timeline += std::string(note->kind) + ": " + note->message + "\n";
      } else if (const auto* pool = std::get_if<PoolDeclared>(&effect)) {
        declared.push_back(*pool);
      } else if (const auto* line = std::get_if<PoolLogLine>(&effect)) {
        log += line->text + "\n";
      } else {
        waiting.push_back(std::move(effect));
      }
    }
    return look;
  }

  // Takes the oldest effect that waits, which must be an Effect.
  template <typename Effect>
  Effect Take() {
    EXPECT_FALSE(waiting.empty());
    EXPECT_TRUE(std::holds_alternative<Effect>(waiting.front()));
    Effect effect = std::get<Effect>(waiting.front());
    waiting.pop_front();
    return effect;
  }

  // Carries out what waits, as a Slurm would that takes everything.
  void Settle() {
    while (!waiting.empty()) {
      PoolEffect effect = std::move(waiting.front());
      waiting.pop_front();
      if (const auto* submit = std::get_if<SubmitPilotJob>(&effect)) {
        jobs.push_back(JobOf(submit->record.key, ++last_id_, "PENDING"));
        Feed(PilotSubmitted{submit->record.key, last_id_});
      } else if (const auto* give = std::get_if<GivePilotToken>(&effect)) {
        ++tokens[give->node];
        Feed(PilotTokenGiven{give->key, give->node, OkStatus()});
      } else if (const auto* put = std::get_if<PutPilotAway>(&effect)) {
        put_away.push_back(put->record.key);
        Feed(PilotPutAway{put->record.key, OkStatus()});
      } else if (const auto* cancel = std::get_if<CancelPilotJob>(&effect)) {
        Feed(PilotCancelled{cancel->record.key, OkStatus()});
      } else if (const auto* stray = std::get_if<CancelStrayJob>(&effect)) {
        cancelled_strays.push_back(stray->slurm_job_id);
        Feed(StrayCancelled{stray->slurm_job_id, OkStatus()});
      }
    }
  }

  static slurm::JobInfo JobOf(const std::string& key, std::uint64_t id, const std::string& state,
                              const std::string& nodes = "") {
    slurm::JobInfo job;
    job.id = id;
    job.state = state;
    job.nodes = nodes;
    job.comment = "muster key=" + key + " at /c/pilots/";
    return job;
  }

  void Need(int nodes) { facts.needs = {{"job j lacks nodes", nodes, false, {}}}; }
  Counts counts() const { return pool_.Counts(); }
  std::string Conditions() const { return nlohmann::json::parse(status_)["conditions"].dump(); }

  std::vector<PilotRecord> left_behind;
  std::vector<slurm::JobInfo> jobs;  // as squeue lists them
  PoolFacts facts;
  std::deque<PoolEffect> waiting;
  std::vector<PoolDeclared> declared;
  std::string timeline;
  std::string log;
  std::map<std::string, int> tokens;
  std::vector<std::string> put_away;
  std::vector<std::uint64_t> cancelled_strays;

 private:
  const std::string config_;
  PilotPool pool_{{.dir = "/c",
                   .config_file = "pilots.yaml",
                   .coordinator = "10.0.0.1:7070",
                   .join_address = "10.0.0.1:7072",
                   .has_authority = true,
                   .process = "77"}};
  Now now_{TimePoint(), 1'800'000'000'000};
  std::string status_;
  std::uint64_t last_id_ = 0;
};

constexpr char kLarge[] = "max_nodes: 300\nmax_pending: 1000\nsubmits_per_minute: 1000\n";

TEST(PilotPoolTest, WhatItsNodesHaveIsDeclaredWithEachConfiguration) {
  PoolHarness any("max_nodes: 4\n");
  ASSERT_EQ(any.declared.size(), 1u);
  EXPECT_FALSE(any.declared[0].node.has_value());
  PoolHarness eight("max_nodes: 4\nnode: {gpus: 8, cpus: 64}\n");
  ASSERT_EQ(eight.declared.size(), 1u);
  EXPECT_EQ(eight.declared[0].slots, 8);
  EXPECT_EQ(eight.declared[0].node->devices.size(), 8u);
}

TEST(PilotPoolTest, MorePilotsThanMayBeUnderWayAllReachSlurm) {
  PoolHarness h(kLarge);
  h.Need(300);
  h.PollResult();
  EXPECT_EQ(h.waiting.size(), PilotPool::kMaxUnderWay);
  h.Settle();
  EXPECT_EQ(h.counts(), (Counts{{"pending", static_cast<int>(PilotPool::kMaxUnderWay)}}));
  for (int n = 0; n < 3; ++n) {
    h.PollResult();
    EXPECT_LE(h.waiting.size(), PilotPool::kMaxUnderWay);
    h.Settle();
  }
  EXPECT_EQ(h.counts(), (Counts{{"pending", 300}}));
}

TEST(PilotPoolTest, AHangingSlurmGetsNoMoreThanItsBound) {
  PoolHarness h(kLarge);
  h.Need(300);
  for (int n = 0; n < 60; ++n) h.PollResult();
  EXPECT_EQ(h.waiting.size(), PilotPool::kMaxUnderWay);
  EXPECT_EQ(h.counts(), (Counts{{"submitting", static_cast<int>(PilotPool::kMaxUnderWay)}}));
}

TEST(PilotPoolTest, PilotsWhoseSubmitsWereLostAreAllSubmittedAgainWithinTheBound) {
  PoolHarness h(kLarge);
  h.Need(300);
  for (int n = 0; n < 10; ++n) {
    h.PollResult();
    while (!h.waiting.empty())
      h.Feed(PilotSubmitted{h.Take<SubmitPilotJob>().record.key, DeadlineExceeded("no answer")});
  }
  ASSERT_EQ(h.counts(), (Counts{{"submitting", 300}}));
  for (int n = 0; n < 4; ++n) {
    h.LookAtSlurm();
    EXPECT_LE(h.waiting.size(), PilotPool::kMaxUnderWay);
    h.Settle();
  }
  EXPECT_EQ(h.counts(), (Counts{{"pending", 300}}));
  EXPECT_EQ(h.jobs.size(), 300u);
}

TEST(PilotPoolTest, EachNodeOfManyPilotsGetsOneToken) {
  PoolHarness h("max_nodes: 300\nnodes_per_pilot: 300\n");
  h.Need(300);
  h.PollResult();
  h.Settle();
  h.jobs[0].state = "RUNNING";
  h.jobs[0].nodes = "n[1-300]";
  h.LookAtSlurm();
  EXPECT_EQ(h.waiting.size(), PilotPool::kMaxUnderWay);
  for (int n = 0; n < 3; ++n) {
    h.Settle();
    h.PollResult();
  }
  EXPECT_EQ(h.tokens.size(), 300u);
  for (const auto& [node, given] : h.tokens) EXPECT_EQ(given, 1) << node;
}

TEST(PilotPoolTest, ATokenThatCouldNotBeMadeIsMadeWithTheNextLook) {
  PoolHarness h;
  h.Need(1);
  h.PollResult();
  h.Settle();
  h.jobs[0].state = "RUNNING";
  h.jobs[0].nodes = "n1";
  h.LookAtSlurm();
  const auto give = h.Take<GivePilotToken>();
  h.Feed(PilotTokenGiven{give.key, "n1", Unavailable("disk full")});
  EXPECT_THAT(h.waiting, IsEmpty()) << "at once it would be tried for ever";
  h.PollResult();
  EXPECT_THAT(h.Conditions(), HasSubstr("join token for node n1: disk full"));
  h.Settle();
  h.PollResult();
  EXPECT_EQ(h.tokens["n1"], 1);
  EXPECT_EQ(h.Conditions(), "[]");
}

TEST(PilotPoolTest, APilotsCertificatesAreRevokedEvenIfThatFailsAtFirst) {
  PoolHarness h;
  h.Need(1);
  h.PollResult();
  h.Settle();
  h.jobs[0].state = "COMPLETED";
  h.Need(0);
  h.LookAtSlurm();
  const auto first = h.Take<PutPilotAway>();
  EXPECT_EQ(first.record.ended, "COMPLETED");
  h.Feed(PilotPutAway{first.record.key, Unavailable("disk full")});
  EXPECT_THAT(h.waiting, IsEmpty());
  h.PollResult();
  h.Settle();
  EXPECT_EQ(h.put_away, (std::vector{first.record.key}));
  h.LookAtSlurm();
  EXPECT_THAT(h.waiting, IsEmpty());
}

TEST(PilotPoolTest, PilotsThatCannotBePutAwayStopNewOnes) {
  PoolHarness h(kLarge);
  h.Need(300);
  std::size_t asked = 0;
  for (int n = 0; n < 3000 && asked < PilotPool::kMaxEnded; ++n) {
    h.LookAtSlurm();
    const std::deque<PoolEffect> waiting = std::exchange(h.waiting, {});
    for (const PoolEffect& effect : waiting) {
      if (const auto* submit = std::get_if<SubmitPilotJob>(&effect)) {
        ++asked;
        h.Feed(PilotSubmitted{submit->record.key, InvalidArgument("no such partition")});
      } else if (const auto* put = std::get_if<PutPilotAway>(&effect)) {
        h.Feed(PilotPutAway{put->record.key, Unavailable("stale file handle")});
      }
    }
  }
  h.waiting.clear();
  for (int n = 0; n < 100; ++n) h.LookAtSlurm();
  for (const PoolEffect& effect : h.waiting)
    EXPECT_FALSE(std::holds_alternative<SubmitPilotJob>(effect));
  EXPECT_THAT(h.Conditions(), HasSubstr("could not be removed"));
}

TEST(PilotPoolTest, AStrayIsCancelledOnceAndForgottenWhenSlurmHasForgottenIt) {
  PoolHarness h;
  h.jobs = {PoolHarness::JobOf("p0", 9, "RUNNING", "n1")};
  h.LookAtSlurm();
  const auto cancel = h.Take<CancelStrayJob>();
  EXPECT_EQ(cancel.slurm_job_id, 9u);
  h.Feed(StrayCancelled{9, Unavailable("Slurm is away")});
  h.LookAtSlurm();
  h.Settle();
  h.LookAtSlurm();
  EXPECT_EQ(h.cancelled_strays, (std::vector<std::uint64_t>{9}));
  h.jobs.clear();
  h.LookAtSlurm();
  // Slurm reuses the numbers of its jobs eventually.
  h.jobs = {PoolHarness::JobOf("p0", 9, "RUNNING", "n1")};
  h.LookAtSlurm();
  h.Settle();
  EXPECT_EQ(h.cancelled_strays, (std::vector<std::uint64_t>{9, 9}));
}

TEST(PilotPoolTest, ACancelThatFailedIsRepeatedWithTheNextList) {
  PoolHarness h("max_nodes: 4\nidle_timeout: 10s\n");
  h.Need(1);
  h.PollResult();
  h.Settle();
  h.Need(0);
  h.LookAtSlurm();
  const auto cancel = h.Take<CancelPilotJob>();
  h.Feed(PilotCancelled{cancel.record.key, Unavailable("Slurm is away")});
  EXPECT_THAT(h.waiting, IsEmpty());
  h.LookAtSlurm();
  EXPECT_EQ(h.Take<CancelPilotJob>().record.key, cancel.record.key);
  EXPECT_EQ(h.counts(), (Counts{{"ending", 1}}));
}

TEST(PilotPoolTest, TroubleOfAPilotGoesWithIt) {
  PoolHarness h("max_nodes: 4\nidle_timeout: 10s\n");
  h.Need(1);
  h.PollResult();
  h.Settle();
  h.Need(0);
  h.LookAtSlurm();
  h.Feed(PilotCancelled{h.Take<CancelPilotJob>().record.key, Unavailable("Slurm is away")});
  h.PollResult();
  EXPECT_THAT(h.Conditions(), HasSubstr("Slurm is away"));
  h.jobs.clear();
  h.LookAtSlurm();
  h.waiting.clear();
  EXPECT_EQ(h.Conditions(), "[]");
}

}  // namespace
}  // namespace muster
