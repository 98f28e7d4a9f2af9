// The guardian's core in every state and in any order of events.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "worker/guardian/testing/fake_host.h"

namespace muster::guardian {
namespace {

using testing::IsEmpty;

enum State { kNew, kPrepared, kRunning, kParking, kKept, kGrace, kGone, kLeaving, kStates };

void Enter(State state, FakeHost* host) {
  if (state == kNew) return;
  host->Command(GuardianPrepare{.generation = 2});
  if (state == kPrepared) return;
  for (const int rank : {0, 1}) host->Command(Rank(2, rank));
  if (state == kParking) {
    host->processes[1].deaf = true;
    host->Command(ParkAll(2));
  } else if (state == kKept) {
    host->Command(ParkAll(2));
    host->Settle();
  } else if (state == kGrace) {
    host->Command(GuardianAbort{.generation = 2, .grace_seconds = 1});
  } else if (state == kGone) {
    host->Command(GuardianAbort{.generation = 2});
    host->Settle();
  } else if (state == kLeaving) {
    host->Command(GuardianRelease{});
  }
}

// The last answers to commands that the worker receives, once everything has settled.
std::string Answer(const FakeHost& host) {
  std::string answer;
  for (const GuardianEvent& event : host.told) {
    if (const auto* prepared = std::get_if<GuardianPrepared>(&event))
      answer = "prepared " + std::to_string(prepared->generation);
    if (const auto* quiesced = std::get_if<GuardianQuiesced>(&event))
      answer = "quiesced " + std::to_string(quiesced->generation) + " kept " +
               std::to_string(quiesced->parked_ranks.size());
    if (std::holds_alternative<GuardianRefused>(event)) answer = "refused";
    if (const auto* started = std::get_if<GuardianRankStarted>(&event))
      answer = "started " + std::to_string(started->rank);
  }
  return host.left ? "left" : answer;
}

TEST(GuardianCoreTable, EveryCommandInEveryState) {
  struct Row {
    GuardianCommand command;
    // new, prepared, running, parking, kept, grace, gone, leaving
    const char* answers[kStates];
  };
  const Row rows[] = {
      {GuardianPrepare{.generation = 1},
       {"prepared 1", "refused", "refused", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0",
        "refused", "left"}},
      {GuardianPrepare{.generation = 2},
       {"prepared 2", "prepared 2", "prepared 2", "quiesced 2 kept 1", "refused",
        "quiesced 2 kept 0", "refused", "left"}},
      {GuardianPrepare{.generation = 3},
       {"prepared 3", "prepared 3", "prepared 3", "prepared 3", "prepared 3", "prepared 3",
        "prepared 3", "left"}},
      {Rank(1, 5),
       {"refused", "refused", "refused", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0",
        "refused", "left"}},
      {Rank(2, 5),
       {"refused", "started 5", "started 5", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0",
        "refused", "left"}},
      {Rank(3, 5),
       {"refused", "refused", "refused", "quiesced 3 kept 1", "refused", "quiesced 3 kept 0",
        "refused", "left"}},
      {ParkAll(1),
       {"quiesced 1 kept 0", "refused", "refused", "quiesced 2 kept 1", "refused",
        "quiesced 2 kept 0", "refused", "left"}},
      {ParkAll(2),
       {"quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 2", "quiesced 2 kept 1",
        "quiesced 2 kept 2", "quiesced 2 kept 0", "quiesced 2 kept 0", "left"}},
      {ParkAll(3),
       {"quiesced 3 kept 0", "quiesced 3 kept 0", "quiesced 3 kept 2", "quiesced 3 kept 1",
        "quiesced 3 kept 2", "quiesced 3 kept 0", "quiesced 3 kept 0", "left"}},
      {GuardianAbort{.generation = 2},
       {"quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0",
        "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "left"}},
      {GuardianAbort{.generation = 2, .grace_seconds = 0.5},
       {"quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0",
        "quiesced 2 kept 0", "quiesced 2 kept 0", "quiesced 2 kept 0", "left"}},
      {GuardianRelease{}, {"left", "left", "left", "left", "left", "left", "left", "left"}},
      {GuardianStandby{.count = 1, .at_once = true, .launch = Rank(0, 0)},
       {"", "", "", "quiesced 2 kept 1", "", "quiesced 2 kept 0", "", "left"}},
      {GuardianStop{2, "drained"},
       {"refused", "", "", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0", "refused", "left"}},
      {GuardianFault{.generation = 2, .rank = 0, .kind = "kill", .argument = ""},
       {"refused", "refused", "", "quiesced 2 kept 1", "refused", "quiesced 2 kept 0", "refused",
        "left"}},
      {GuardianHold{"old"}, {"", "", "", "quiesced 2 kept 1", "", "quiesced 2 kept 0", "", "left"}},
  };
  for (std::size_t row = 0; row < std::size(rows); ++row) {
    for (int state = 0; state < kStates; ++state) {
      FakeHost host;
      Enter(static_cast<State>(state), &host);
      host.told.clear();
      host.Command(rows[row].command);
      host.Settle();
      EXPECT_EQ(Answer(host), rows[row].answers[state]) << "row " << row << ", state " << state;
    }
  }
}

class Walk {
 public:
  explicit Walk(std::uint32_t seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < 120 && !host_.left; ++i) {
      Step();
      Check();
      if (testing::Test::HasFailure()) return;
    }
    host_.Settle();
    Check();
    if (host_.left) return;
    host_.Command(GuardianAbort{.generation = host_.core.newest() + 1});
    host_.Settle();
    EXPECT_THAT(host_.locked, IsEmpty()) << "nothing is left that could use a device";
  }

 private:
  int Any(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  ProcessId AnyProcess() {
    if (host_.processes.empty()) return 0;
    return std::next(host_.processes.begin(), Any(static_cast<int>(host_.processes.size())))->first;
  }

  void Step() {
    const Generation generation = std::max<Generation>(1, host_.core.newest() - 1 + Any(3));
    switch (Any(15)) {
      case 0: return Prepare(generation);
      case 1: return host_.Command(ParkAll(generation));
      case 2: return host_.Command(ParkAll(generation, {Any(2)}));
      case 3:
        return host_.Command(GuardianAbort{
            .generation = generation, .grace_seconds = Any(2) * 0.01, .reason = "test"});
      case 4:
        return host_.Command(
            GuardianStandby{.count = Any(3), .at_once = Any(2) == 0, .launch = Rank(0, 0)});
      case 5: return host_.Do(host_.core.Handle(WorkerConnected{7}, host_.now));
      case 6:
        if (const ProcessId id = AnyProcess()) host_.Die(id, {.signal = SIGSEGV});
        return;
      case 7:
        if (const ProcessId id = AnyProcess()) host_.processes[id].deaf = true;
        return;
      case 8:
        if (const ProcessId id = AnyProcess()) host_.Park(id);
        return;
      case 9:
        if (const ProcessId id = AnyProcess())
          host_.Say(id, R"({"type":"segment","name":"s)" + std::to_string(Any(30)) + R"("})", true);
        return;
      case 10:
        if (const ProcessId id = AnyProcess()) host_.Say(id, R"({"type":"first_step","step":1})");
        return;
      case 11: return host_.Settle();
      case 12: return host_.Command(Rank(generation, Any(2)));
      default: return host_.Command(RankOn(generation, Any(2), Device(Any(3))));
    }
  }

  static std::string Device(int number) { return "gpu" + std::to_string(number); }

  // With any of the devices, one of which another job may have.
  void Prepare(Generation generation) {
    GuardianPrepare prepare{.generation = generation, .spare = Any(4) == 0};
    host_.foreign.clear();
    for (int i = 0; i < 3; ++i)
      if (Any(2) == 0) prepare.devices.push_back(Device(i));
    if (Any(3) == 0) host_.foreign.insert(Device(Any(3)));
    host_.Command(prepare);
  }

  void Check() {
    std::set<std::pair<Generation, int>> ranks;
    for (const ProcessId id : host_.Working()) {
      const FakeHost::Process& process = host_.processes[id];
      if (process.killed) continue;
      EXPECT_TRUE(ranks.insert({process.generation, process.rank}).second) << "two of one rank";
      for (const std::string& device : process.devices)
        EXPECT_TRUE(host_.locked.contains(device)) << "it runs without a lock";
    }
    for (; seen_ < host_.told.size(); ++seen_) CheckTold(host_.told[seen_]);
    EXPECT_LE(host_.segments.size(), 2 * kSegmentsPerRank);
  }

  void CheckTold(const GuardianEvent& event) {
    if (const auto* prepared = std::get_if<GuardianPrepared>(&event)) {
      EXPECT_GE(prepared->generation, newest_);
      newest_ = prepared->generation;
    } else if (const auto* exited = std::get_if<GuardianRankExited>(&event)) {
      EXPECT_GE(exited->generation, newest_);
    } else if (const auto* report = std::get_if<GuardianReport>(&event)) {
      EXPECT_GE(report->generation, newest_);
    }
    // The last report is still true when it is checked: nothing has happened since.
    const bool last = seen_ + 1 == host_.told.size();
    if (const auto* quiesced = std::get_if<GuardianQuiesced>(&event); quiesced && last) {
      EXPECT_THAT(host_.Working(), IsEmpty());
      EXPECT_LE(quiesced->parked_ranks.size(), host_.processes.size());
    }
    if (const auto* prepared = std::get_if<GuardianPrepared>(&event); prepared && last) {
      for (const ProcessId id : host_.Working())
        EXPECT_EQ(host_.processes[id].generation, prepared->generation);
      for (const auto& [id, process] : host_.processes)
        for (const std::string& device : process.devices)
          EXPECT_TRUE(host_.locked.contains(device)) << "it counts as free";
    }
  }

  std::mt19937 random_;
  FakeHost host_;
  std::size_t seen_ = 0;
  Generation newest_ = 0;
};

TEST(GuardianCoreWalk, WhateverComesNoTwoGenerationsRunAtOnce) {
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    Walk(seed).Run();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace muster::guardian
