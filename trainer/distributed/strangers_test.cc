// Gangs that form while others than their ranks are at their ports.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "trainer/distributed/gloo_ring.h"
#include "trainer/distributed/host_gang_testing.h"
#include "trainer/distributed/store_meeting.h"
#include "trainer/distributed/strangers_testing.h"

namespace muster {
namespace {

using testing::Child;
using testing::GoBy;
using testing::kWays;
using testing::Listen;
using testing::Listener;
using testing::Soon;
using testing::Strangers;
using testing::Way;

constexpr int kRanks = 4;
const std::string kToken(64, 'a');

// "OK SECONDS", or how it failed.
std::string FormOne(Rendezvous rendezvous, Way way) {
  GoBy(way);
  const TimePoint begin = SystemClock().Now();
  const auto gang = MakeHostCommunicator();
  Status status = gang->Form(std::move(rendezvous), Soon());
  if (status.ok()) status = gang->Barrier();
  const double seconds = ToSeconds(SystemClock().Now() - begin);
  if (status.ok()) status = gang->Barrier();
  return status.ok() ? "OK " + std::to_string(seconds) : status.ToString();
}

// How long the slowest of four ranks took; negative where one failed.
double FormGang(Way way, const std::string& token, int silent_strangers) {
  Listener listener = Listen();
  const int port = listener.port;
  std::vector<UniqueFd> strangers;
  if (silent_strangers > 0) strangers = Strangers(port, silent_strangers);
  std::vector<Child> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.emplace_back([&, rank]() -> std::string {
      Rendezvous rendezvous = testing::MeetAt(listener, rank, kRanks);
      rendezvous.token = token;
      return FormOne(std::move(rendezvous), way);
    });
  }
  listener.fd.reset();
  double slowest = 0;
  for (Child& rank : ranks) {
    const std::string said = rank.Said();
    EXPECT_TRUE(said.starts_with("OK ")) << said;
    if (!said.starts_with("OK ")) return -1;
    slowest = std::max(slowest, std::stod(said.substr(3)));
  }
  return slowest;
}

// How two neighbours of a ring part or meet, each with its own token, after they have found each
// other at a store that asks nobody.
std::vector<Status> ConnectRing(const std::string& one, const std::string& other) {
  Listener listener = Listen();
  std::vector<StoreMeeting> meetings(2);
  for (int rank = 0; rank < 2; ++rank) {
    Rendezvous rendezvous = testing::MeetAt(listener, rank, 2);
    rendezvous.token.clear();
    const Status opened = meetings[rank].Open(std::move(rendezvous), Soon());
    if (!opened.ok()) return {opened, opened};
  }
  std::vector<Status> outcomes(2);
  std::thread neighbour([&] {
    outcomes[1] = ConnectGlooRing(meetings[1], other, "muster/1/world/", 1, 2, Soon()).status();
  });
  // What was connected lives until both have proved.
  const auto link = ConnectGlooRing(meetings[0], one, "muster/1/world/", 0, 2, Soon());
  outcomes[0] = link.status();
  neighbour.join();
  meetings[1].Close();
  return outcomes;
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

TEST(Strangers, DoNotKeepAGangFromForming) {
  for (const Way way : kWays) {
    const double seconds = FormGang(way, kToken, /*silent_strangers=*/200);
    EXPECT_GE(seconds, 0);
    // Far below the time after which a silent one is dropped.
    EXPECT_LT(seconds, 5);
  }
}

TEST(Strangers, ARankWithAnotherTokenIsLeftOutAndTheOthersMeet) {
  Listener listener = Listen();
  Listener nothing;
  nothing.port = listener.port;
  std::vector<Child> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank]() -> std::string {
      Rendezvous rendezvous = testing::MeetAt(listener, rank, 2);
      rendezvous.token = kToken;
      return FormOne(std::move(rendezvous), Way::kSockets);
    });
  }
  listener.fd.reset();
  Rendezvous impostor = testing::MeetAt(nothing, 1, 2);
  impostor.token = std::string(64, 'b');
  const auto gang = MakeHostCommunicator();
  const Status refused = gang->Form(std::move(impostor), Soon());
  EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused.ToString();
  for (Child& rank : ranks) EXPECT_TRUE(rank.Said().starts_with("OK "));
}

// Gloo takes whoever is first at a pair's place.
TEST(Strangers, ANeighbourThatDoesNotKnowTheTokenIsFoundOutBeforeAnyData) {
  const TimePoint begin = SystemClock().Now();
  std::string said;
  for (const Status& outcome : ConnectRing(kToken, std::string(64, 'b'))) {
    EXPECT_EQ(outcome.code(), StatusCode::kUnavailable) << outcome.ToString();
    said += outcome.message();
  }
  // The other one may only see that the first has closed.
  EXPECT_NE(said.find("does not know this generation's token"), std::string::npos) << said;
  EXPECT_LT(ToSeconds(SystemClock().Now() - begin), 5);
  for (const Status& outcome : ConnectRing(kToken, kToken))
    EXPECT_TRUE(outcome.ok()) << outcome.ToString();
}

TEST(Strangers, ShowingTheTokenCostsAFormingGangLittle) {
  for (const Way way : kWays) {
    std::vector<double> without, with;
    for (int i = 0; i < 11; ++i) {
      without.push_back(FormGang(way, "", 0));
      with.push_back(FormGang(way, kToken, 0));
    }
    std::printf("forming %d ranks over %s: %.4f s without a token, %.4f s with one, ratio %.2f\n",
                kRanks, way == Way::kSockets ? "sockets" : "shared memory", Median(without),
                Median(with), Median(with) / Median(without));
    // On a busy machine one of eleven is in the middle by chance; a wait would be seen all the
    // same.
    EXPECT_LT(Median(with), 2 * Median(without) + 0.1);
  }
}

}  // namespace
}  // namespace muster
