// One rank of a gang that runs collectives of random kinds and sizes, and checks every bit that
// comes out, until the time is over on any rank:
//
//   ring_probe RANK RANKS ADDRESS_OF_RANK_0 PORT SECONDS SEED LARGEST
//
// A collective has fewer than 2^LARGEST elements. Prints "formed", and at its end one line of JSON:
// how many collectives were checked, and what went wrong. Ends with status 0 where nothing did.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "trainer/comm/group/host_communicator.h"
#include "trainer/comm/group/testing/groups_testing.h"
#include "trainer/comm/group/testing/in_process_communicator.h"

namespace muster::testing {
namespace {

constexpr std::size_t kSums = 1'001;

// As a guardian makes it for rank 0.
UniqueFd ListenOn(const char* address, const char* port) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  MUSTER_CHECK(::inet_pton(AF_INET, address, &place.sin_addr) == 1, "an IPv4 address");
  MUSTER_CHECK(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&place), sizeof(place)) == 0 &&
                   ::listen(fd.get(), SOMAXCONN) == 0,
               "listen");
  return fd;
}

// What this rank's sums are, bit for bit, where nothing is on the way.
std::string ReferenceSums(int rank, int size) {
  InProcessGroup group(size);
  std::string mine;
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r) {
    ranks.emplace_back([&, r] {
      const auto c = group.Join(r);
      Rendezvous rendezvous;
      rendezvous.rank = r;
      rendezvous.world_size = size;
      if (!c->Form(std::move(rendezvous), Deadline::After(std::chrono::minutes(1))).ok()) return;
      std::string sums = OrderSensitiveSums(*c, kSums);
      if (r == rank) mine = std::move(sums);
    });
  }
  for (std::thread& each : ranks) each.join();
  return mine;
}

// The same one on all ranks, whose generators are in the same state.
std::string CheckOne(Communicator& c, std::mt19937_64& random, unsigned largest,
                     const std::string& sums) {
  constexpr ElementType kTypes[] = {ElementType::kUint8, ElementType::kInt64,
                                    ElementType::kBFloat16, ElementType::kFloat32};
  const ElementType type = kTypes[random() % std::size(kTypes)];
  // As many small ones as large ones.
  const std::size_t count = random() % (std::size_t{1} << random() % (largest + 1));
  switch (random() % 6) {
    case 0: return CheckAllGather(c, type, count);
    case 1: return CheckReduceScatter(c, type, count, ReduceOp::kSum, count % 2 == 0);
    case 2: return CheckAllReduce(c, type, count, ReduceOp::kMax);
    case 3: return CheckBroadcast(c, count, static_cast<int>(count) % c.size());
    case 4: return CheckShift(c, count);
    default: break;
  }
  const std::string got = OrderSensitiveSums(c, kSums);
  if (got == sums) return "";
  return got.size() == sums.size() ? "sums have other bits" : got;
}

int Run(Rendezvous rendezvous, Duration time, std::uint64_t seed, unsigned largest) {
  const int size = rendezvous.world_size;
  const std::string sums = ReferenceSums(rendezvous.rank, size);
  std::mt19937_64 random(seed);
  const auto c = MakeHostCommunicator();
  const Status formed = c->Form(std::move(rendezvous), Deadline::After(std::chrono::minutes(5)));
  std::string wrong = formed.ok() ? "" : formed.ToString();
  std::printf("formed\n");
  std::fflush(stdout);
  const Deadline end = Deadline::After(time);
  int checked = 0;
  std::int64_t over = 0;
  while (wrong.empty() && over == 0) {
    wrong = CheckOne(*c, random, largest, sums);
    if (!wrong.empty()) break;
    ++checked;
    over = end.Expired() ? 1 : 0;
    const Status agreed = c->AllReduce(&over, 1, ElementType::kInt64, ReduceOp::kMax)->Wait();
    if (!agreed.ok()) wrong = agreed.ToString();
  }
  const nlohmann::json report = {{"checked", checked},
                                 {"bytes", c->counters().bytes},
                                 {"transport", c->Describe()},
                                 {"wrong", wrong}};
  std::printf("%s\n", report.dump().c_str());
  return wrong.empty() ? 0 : 1;
}

}  // namespace
}  // namespace muster::testing

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr,
                 "usage: ring_probe RANK RANKS ADDRESS_OF_RANK_0 PORT SECONDS SEED LARGEST\n");
    return 2;
  }
  muster::Rendezvous rendezvous;
  rendezvous.generation = 1;
  rendezvous.rank = std::atoi(argv[1]);
  rendezvous.world_size = std::atoi(argv[2]);
  rendezvous.master_address = argv[3];
  rendezvous.master_port = std::atoi(argv[4]);
  rendezvous.token = std::string(64, 'a');
  if (rendezvous.rank == 0) rendezvous.listen_fd = muster::testing::ListenOn(argv[3], argv[4]);
  return muster::testing::Run(std::move(rendezvous), muster::FromSeconds(std::atof(argv[5])),
                              std::strtoull(argv[6], nullptr, 10),
                              static_cast<unsigned>(std::atoi(argv[7])));
}
