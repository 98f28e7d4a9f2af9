// Processes that live on when their generation ends: aborts from outside, and forming again when
// old peers are dead, stopped, or come back to life. All over shared memory and over sockets.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <tuple>

#include "tests/support/eventually.h"
#include "trainer/comm/group/testing/collectives_testing.h"
#include "trainer/comm/group/testing/host_gang_testing.h"
#include "trainer/comm/transport/shared/unix_mesh.h"

namespace muster::testing {
namespace {

// Milliseconds on a machine with nothing else to do.
constexpr Duration kAtOnce = std::chrono::milliseconds(500);

// Where a rank is when its generation ends.
enum class Place {
  kForm,
  kSplit,
  kShare,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kBroadcast,
  kShift,
  kBarrier
};
constexpr auto kCollectives = {Place::kAllGather, Place::kReduceScatter, Place::kAllReduce,
                               Place::kBroadcast, Place::kShift,         Place::kBarrier};

std::unique_ptr<Work> Issue(Communicator& c, Place place, std::vector<float>& data) {
  const std::size_t part = data.size() / 3;
  switch (place) {
    case Place::kAllGather:
      return c.AllGather(data.data() + part * static_cast<std::size_t>(c.rank()), data.data(), part,
                         ElementType::kFloat32);
    case Place::kReduceScatter:
      return c.ReduceScatter({.full = data.data(), .shard = data.data(), .count = part});
    case Place::kBroadcast: return c.Broadcast(data.data(), data.size() * sizeof(float), 0);
    case Place::kShift:
      return c.RingSendRecv(data.data(), data.data() + part, part * sizeof(float));
    default: return c.AllReduce(data.data(), data.size(), ElementType::kFloat32, ReduceOp::kSum);
  }
}

// Goes there until the generation ends, and says how.
Status StayAt(Communicator& c, Place place) {
  if (place == Place::kSplit) return c.Split("all", {0, 1, 2}, Soon()).status();
  std::vector<float> data(900'000);
  Status status;
  while (status.ok()) {
    if (place == Place::kShare) {
      status = c.Share(RegionKind::kCommon, 5000, -1).status();
    } else {
      status = place == Place::kBarrier ? c.Barrier() : Issue(c, place, data)->Wait();
    }
  }
  return status;
}

// A thread that aborts as soon as the test says so; how long the aborted thread took.
class Supervisor {
 public:
  Supervisor(Communicator& c, SideChannel& order)
      : thread_([&] {
          order.Await();
          aborted_ = std::chrono::steady_clock::now();
          c.Abort(Cancelled("parked"));
        }) {}
  Duration OutAfter() {
    const auto out = std::chrono::steady_clock::now();
    thread_.join();
    return out - aborted_;
  }

 private:
  std::chrono::steady_clock::time_point aborted_;
  std::thread thread_;
};

// One of two that are parked may first lose the other.
std::string CheckParked(const Status& status, Duration out_after) {
  const bool lost = status.code() == StatusCode::kUnavailable;
  if (status != Cancelled("parked") && !lost) return status.ToString();
  return out_after < kAtOnce ? "" : "took " + std::to_string(ToSeconds(out_after)) + " s";
}

class KilledPeer : public ::testing::TestWithParam<std::tuple<Way, Place>> {};

// Rank 1 dies where the others are. Collectives end by themselves; who meets waits for the word of
// the supervisor. The next generation is theirs and a fresh process's.
TEST_P(KilledPeer, LeavesNothingThatTheNextGenerationSees) {
  const auto [way, place] = GetParam();
  const bool alone = std::ranges::find(kCollectives, place) != std::end(kCollectives) ||
                     (place == Place::kShare && way == Way::kSharedMemory);
  Listener first = Listen();
  Listener second = Listen();
  SideChannel there;
  SideChannel order;
  std::vector<Child> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      GoBy(way);
      const auto c = MakeHostCommunicator();
      if (place != Place::kForm) {
        if (Status s = c->Form(MeetAt(first, r, 3), Soon()); !s.ok()) return s.ToString();
      }
      if (r == 1) {
        there.Await(2);
        kill(getpid(), SIGKILL);
      }
      there.Tell();
      if (alone) {
        const Status status = StayAt(*c, place);
        if (status.code() != StatusCode::kUnavailable) return status.ToString();
      } else {
        Supervisor supervisor(*c, order);
        const Status status =
            place == Place::kForm ? c->Form(MeetAt(first, r, 3), Soon()) : StayAt(*c, place);
        if (auto e = CheckParked(status, supervisor.OutAfter()); !e.empty()) return e;
      }
      if (Status s = c->Form(MeetAt(second, r, 3, 2), Soon()); !s.ok()) return s.ToString();
      return CheckEverything(*c, 901);
    });
  }
  ranks[1].Said();
  order.Tell();
  order.Tell();
  Child fresh([&]() -> std::string {
    GoBy(way);
    const auto c = MakeHostCommunicator();
    if (Status s = c->Form(MeetAt(second, 1, 3, 2), Soon()); !s.ok()) return s.ToString();
    return CheckEverything(*c, 901);
  });
  EXPECT_EQ(ranks[0].Said(), "");
  EXPECT_EQ(ranks[2].Said(), "");
  EXPECT_EQ(fresh.Said(), "");
}

INSTANTIATE_TEST_SUITE_P(
    Places, KilledPeer,
    ::testing::Combine(::testing::Values(Way::kSharedMemory, Way::kSockets),
                       ::testing::Values(Place::kForm, Place::kSplit, Place::kAllGather,
                                         Place::kReduceScatter, Place::kAllReduce,
                                         Place::kBroadcast, Place::kShift, Place::kBarrier)));
INSTANTIATE_TEST_SUITE_P(Share, KilledPeer,
                         ::testing::Values(std::tuple(Way::kSharedMemory, Place::kShare)));

class StoppedPeer : public ::testing::TestWithParam<std::tuple<Way, Place, int>> {};

// A rank is stopped, rank 0 with the store among them; the others are called off and go on without
// it. When it continues it gets an error, and the new generation does not notice.
TEST_P(StoppedPeer, ComesBackToAnErrorAndDisturbsNobody) {
  const auto [way, place, stopped] = GetParam();
  Listener first = Listen();
  Listener second = Listen();
  SideChannel there;
  SideChannel order;
  SideChannel formed_again;
  SideChannel continued;
  std::vector<Child> ranks;
  for (int r = 0; r < 3; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      GoBy(way);
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(MeetAt(first, r, 3), Soon()); !s.ok()) return s.ToString();
      if (r == stopped) {
        raise(SIGSTOP);
        return StayAt(*c, Place::kAllReduce).ok() ? "went on" : "";
      }
      there.Tell();
      Supervisor supervisor(*c, order);
      const Status status = StayAt(*c, place);
      if (auto e = CheckParked(status, supervisor.OutAfter()); !e.empty()) return e;
      const int rank = r > stopped ? r - 1 : r;
      if (Status s = c->Form(MeetAt(second, rank, 2, 2), Soon()); !s.ok()) return s.ToString();
      if (auto e = CheckEverything(*c, 901); !e.empty()) return e;
      formed_again.Tell();
      continued.Await();
      return CheckEverything(*c, 901);
    });
  }
  Child& sleeper = ranks[static_cast<std::size_t>(stopped)];
  int status = 0;
  ASSERT_EQ(waitpid(sleeper.pid(), &status, WUNTRACED), sleeper.pid());
  ASSERT_TRUE(WIFSTOPPED(status));
  there.Await(2);
  for (int i = 0; i < 2; ++i) order.Tell();
  formed_again.Await(2);
  kill(sleeper.pid(), SIGCONT);
  EXPECT_EQ(sleeper.Said(), "");
  for (int i = 0; i < 2; ++i) continued.Tell();
  for (int r = 0; r < 3; ++r) {
    if (r == stopped) continue;
    EXPECT_EQ(ranks[static_cast<std::size_t>(r)].Said(), "") << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Places, StoppedPeer,
                         ::testing::Combine(::testing::Values(Way::kSharedMemory, Way::kSockets),
                                            ::testing::Values(Place::kAllReduce, Place::kSplit,
                                                              Place::kShift),
                                            ::testing::Values(0, 2)));

class LongLife : public ::testing::TestWithParam<Way> {};

struct Footprint {
  std::ptrdiff_t descriptors = 0;
  std::ptrdiff_t threads = 0;
  std::ptrdiff_t mappings = 0;
  long resident_pages = 0;

  static Footprint Now() {
    const auto count = [](const char* directory) {
      return std::distance(std::filesystem::directory_iterator(directory), {});
    };
    std::ifstream maps("/proc/self/maps");
    std::ifstream statm("/proc/self/statm");
    Footprint now;
    now.descriptors = count("/proc/self/fd");
    now.threads = count("/proc/self/task");
    now.mappings = std::count(std::istreambuf_iterator<char>(maps), {}, '\n');
    statm >> now.resident_pages >> now.resident_pages;
    return now;
  }
};

// One generation of two: a group, a region where there can be one, collectives; every second one
// ends by an abort of rank 0 while rank 1 waits.
std::string LiveThrough(Communicator& c, Generation generation, SideChannel& done) {
  const auto pair = c.Split("pair", {0, 1}, Soon());
  if (!pair.ok()) return pair.status().ToString();
  const auto region = c.Share(RegionKind::kCommon, 100'000, -1);
  if (auto e = CheckShift(**pair, 70'000); !e.empty()) return e;
  if (auto e = CheckAllReduce(c, ElementType::kFloat32, 30'000, ReduceOp::kSum); !e.empty()) {
    return e;
  }
  if (generation % 2 == 0) return "";
  if (c.rank() == 1) done.Tell();
  if (c.rank() == 0) {
    done.Await();
    c.Abort(Cancelled("parked"));
    return "";
  }
  const Status status = c.Barrier();
  return status.code() == StatusCode::kUnavailable ? "" : status.ToString();
}

TEST_P(LongLife, TwoHundredGenerationsLeaveNothingBehind) {
  constexpr Generation kWarm = 40;
  constexpr Generation kHalf = 120;
  constexpr Generation kLast = 200;
  SideChannel done;
  int ports[2];
  ASSERT_EQ(pipe2(ports, O_CLOEXEC), 0);
  std::vector<Child> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      GoBy(GetParam());
      // One arena, and large blocks from the kernel and back: what grows then is what was leaked,
      // not what chance has left in the arenas of threads that are gone.
      mallopt(M_ARENA_MAX, 1);
      mallopt(M_MMAP_THRESHOLD, 64 << 10);
      const auto c = MakeHostCommunicator();
      Footprint before, halfway;
      for (Generation generation = 1; generation <= kLast; ++generation) {
        Listener listener;
        if (r == 0) {
          listener = Listen();
          if (write(ports[1], &listener.port, sizeof(int)) != sizeof(int)) return "write";
        } else if (read(ports[0], &listener.port, sizeof(int)) != sizeof(int)) {
          return "read";
        }
        if (Status s = c->Form(MeetAt(listener, r, 2, generation), Soon()); !s.ok()) {
          return std::to_string(generation) + ": " + s.ToString();
        }
        if (auto e = LiveThrough(*c, generation, done); !e.empty()) {
          return std::to_string(generation) + ": " + e;
        }
        if (generation == kWarm) before = Footprint::Now();
        if (generation == kHalf) halfway = Footprint::Now();
      }
      const Footprint after = Footprint::Now();
      // The kernel takes a moment to forget a thread that has been joined.
      const auto settled = [&] {
        const Footprint now = Footprint::Now();
        return now.descriptors <= before.descriptors && now.threads <= before.threads;
      };
      if (!Eventually(settled)) return "descriptors or threads";
      if (after.mappings > before.mappings + 8) return "mappings";
      // What leaks does so in both halves; blocks that chance has placed badly stay in one.
      const long pages = 2 * std::min(halfway.resident_pages - before.resident_pages,
                                      after.resident_pages - halfway.resident_pages);
      const long grown = pages * sysconf(_SC_PAGESIZE);
      return grown < 4 << 20 ? "" : "grew by " + std::to_string(grown) + " bytes";
    });
  }
  EXPECT_EQ(ranks[0].Said(), "");
  EXPECT_EQ(ranks[1].Said(), "");
  close(ports[0]);
  close(ports[1]);
}

INSTANTIATE_TEST_SUITE_P(Ways, LongLife, ::testing::Values(Way::kSharedMemory, Way::kSockets));

// The guardian made the socket; rank 0, which is to serve it, never comes. A connection is made and
// no answer follows.
TEST(StoreThatNobodyServes, DoesNotHoldUpAnAbort) {
  Child rank([]() -> std::string {
    const Listener listener = Listen();
    const auto c = MakeHostCommunicator();
    Rendezvous rendezvous;
    rendezvous.generation = 1;
    rendezvous.rank = 1;
    rendezvous.world_size = 2;
    rendezvous.master_address = "127.0.0.1";
    rendezvous.master_port = listener.port;
    std::chrono::steady_clock::time_point aborted;
    std::thread supervisor([&] {
      pollfd connected{listener.fd.get(), POLLIN, 0};
      while (poll(&connected, 1, -1) != 1) {
      }
      aborted = std::chrono::steady_clock::now();
      c->Abort(Cancelled("parked"));
    });
    const Status status = c->Form(std::move(rendezvous), Soon());
    const auto out = std::chrono::steady_clock::now();
    supervisor.join();
    return CheckParked(status, out - aborted);
  });
  EXPECT_EQ(rank.Said(), "");
}

int OptionOf(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return getsockopt(fd, level, name, &value, &length) == 0 ? value : -1;
}

// Store and ring; of rank 1, which serves no store.
TEST(TcpConnections, OfAGangDoNotOutliveTheirHostByMinutes) {
  Listener listener = Listen();
  std::vector<Child> ranks;
  for (int r = 0; r < 2; ++r) {
    ranks.emplace_back([&, r]() -> std::string {
      GoBy(Way::kSockets);
      const auto c = MakeHostCommunicator();
      if (Status s = c->Form(MeetAt(listener, r, 2), Soon()); !s.ok()) return s.ToString();
      int connections = 0;
      for (int fd = 0; fd < 1024; ++fd) {
        tcp_info info{};
        socklen_t length = sizeof(info);
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) continue;
        if (info.tcpi_state != TCP_ESTABLISHED) continue;
        ++connections;
        const int silence =
            OptionOf(fd, IPPROTO_TCP, TCP_KEEPIDLE) +
            OptionOf(fd, IPPROTO_TCP, TCP_KEEPINTVL) * OptionOf(fd, IPPROTO_TCP, TCP_KEEPCNT);
        if (r == 1 && (OptionOf(fd, SOL_SOCKET, SO_KEEPALIVE) != 1 || silence > 15)) {
          return "a connection waits for ever";
        }
      }
      if (Status s = c->Barrier(); !s.ok()) return s.ToString();
      return connections >= 2 ? "" : "no connections were found";
    });
  }
  for (Child& rank : ranks) EXPECT_EQ(rank.Said(), "");
}

}  // namespace
}  // namespace muster::testing
