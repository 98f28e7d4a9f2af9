// What the ranks of one host learn when one of them is killed, stopped or aborted.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "trainer/comm/group/testing/host_gang_testing.h"
#include "trainer/comm/group/testing/regions_testing.h"

namespace muster::testing {
namespace {

// Equal in all processes.
double MonotonicSeconds() { return ToSeconds(std::chrono::steady_clock::now().time_since_epoch()); }

// The rank dies with an operation under way; the survivors sleep in theirs.
TEST(SharedMemoryFailure, AKilledRankIsNamedAtOnce) {
  Listener listener = Listen();
  SideChannel formed;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  std::vector<Child> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(MeetAt(listener, r, 4), Soon()); !s.ok()) return s.ToString();
      std::vector<float> data(400'000);
      if (r == 1) {
        formed.Await(3);
        const auto work =
            c->AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum);
        for (int i = 0; i < 3; ++i) {
          const double now = MonotonicSeconds();
          if (write(ends[1], &now, sizeof(now)) != sizeof(now)) return "write";
        }
        kill(getpid(), SIGKILL);
      }
      formed.Tell();
      const Status status =
          c->AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum)->Wait();
      const double now = MonotonicSeconds();
      double killed = 0;
      if (read(ends[0], &killed, sizeof(killed)) != sizeof(killed)) return "read";
      if (status.code() != StatusCode::kUnavailable) return status.ToString();
      if (status.message().find("lost rank 1") == std::string::npos) return status.ToString();
      // Milliseconds on a machine with nothing else to do.
      return now - killed < 0.5 ? "" : "took " + std::to_string(now - killed) + " s";
    });
  }
  close(ends[0]);
  close(ends[1]);
  for (const int r : {0, 2, 3}) EXPECT_EQ(ranks[static_cast<std::size_t>(r)].Said(), "");
}

// While it is stopped the others give up and form again without it; when it goes on, it writes to
// memory that no other rank has any more.
TEST(SharedMemoryFailure, AStoppedRankIsNamedAndHarmsNoLaterGeneration) {
  Listener first = Listen();
  Listener second = Listen();
  SideChannel formed_again;
  SideChannel continued;
  std::vector<Child> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const auto c = MakeHostCommunicator({.operation_timeout = std::chrono::milliseconds(200)});
      if (Status s = c->Form(MeetAt(first, r, 3), Soon()); !s.ok()) return s.ToString();
      const auto region = c->Share(RegionKind::kPerRank, 3 * 1000 * sizeof(float), -1);
      if (!region.ok()) return region.status().ToString();
      auto* full = static_cast<float*>((*region)->data());
      std::vector<float> shard(1000);
      if (r == 2) {
        raise(SIGSTOP);
        std::fill(full, full + 3000, 7.0F);
      }
      const Status status =
          c->ReduceScatter({.full = full, .shard = shard.data(), .count = 1000})->Wait();
      if (r == 2) return std::string(StatusCodeName(status.code()));
      // One of the two may hear of the other's timeout before its own is at an end.
      if (status.code() != StatusCode::kDeadlineExceeded &&
          status.code() != StatusCode::kUnavailable) {
        return status.ToString();
      }
      if (status.message().find("rank 2 did not come in time") == std::string::npos) {
        return status.ToString();
      }
      const auto again = MakeHostCommunicator();
      if (Status s = again->Form(MeetAt(second, r, 2, 2), Soon()); !s.ok()) return s.ToString();
      formed_again.Tell();
      continued.Await();
      return CheckRegions(*again);
    });
  }
  formed_again.Await(2);
  int status = 0;
  ASSERT_EQ(waitpid(ranks[2].pid(), &status, WUNTRACED), ranks[2].pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  kill(ranks[2].pid(), SIGCONT);
  continued.Tell();
  continued.Tell();
  EXPECT_EQ(ranks[0].Said(), "");
  EXPECT_EQ(ranks[1].Said(), "");
  EXPECT_EQ(ranks[2].Said(), "UNAVAILABLE");
}

// Rank 0 aborts from another thread while pieces of a large operation go back and forth.
TEST(SharedMemoryFailure, AnAbortInMidCollectiveReachesAllRanks) {
  Listener listener = Listen();
  std::vector<Child> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(MeetAt(listener, r, 3), Soon()); !s.ok()) return s.ToString();
      std::atomic<bool> under_way = false;
      std::thread supervisor([&] {
        if (r != 0) return;
        under_way.wait(false);
        c->Abort(Aborted("stop"));
      });
      std::vector<float> data(3'000'000);
      Status status;
      while (status.ok()) {
        const auto work =
            c->AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum);
        under_way = true;
        under_way.notify_all();
        status = work->Wait();
      }
      supervisor.join();
      return status.ToString();
    });
  }
  EXPECT_EQ(ranks[0].Said(), "ABORTED: stop");
  for (const std::size_t r : {1, 2}) {
    const std::string said = ranks[r].Said();
    // One may hear it from the other.
    EXPECT_TRUE(said.starts_with("UNAVAILABLE: rank ")) << said;
    EXPECT_TRUE(said.ends_with("rank 0 gave up its generation: stop")) << said;
  }
}

// A group below is ended by its own watch, whichever group its caller waits in.
TEST(SharedMemoryFailure, AGroupLosesItsMemberTooAndTheOthersDoNot) {
  Listener listener = Listen();
  SideChannel formed;
  std::vector<Child> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(MeetAt(listener, r, 4), Soon()); !s.ok()) return s.ToString();
      const int first = r / 2 * 2;
      const auto pair = c->Split("pair", {first, first + 1}, Soon());
      if (!pair.ok()) return pair.status().ToString();
      formed.Tell();
      if (r == 3) {
        formed.Await(4);
        kill(getpid(), SIGKILL);
      }
      // Ranks 0 and 1 have lost no peer in their pair.
      if (r == 2) return std::string(StatusCodeName((*pair)->Barrier().code()));
      const Status world = c->Barrier();
      return std::string(StatusCodeName(world.code())) + CheckEverything(**pair, 37);
    });
  }
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)].Said(), "UNAVAILABLE") << r;
  }
}

}  // namespace
}  // namespace muster::testing
