// Whether the simulation sees: bugs planted at the seams between the parts, each of which must show
// within a bounded number of seeds. A bug that no seed finds fails its test.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/checkpoint_format/shard_name.h"
#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

using Up = std::vector<WorkerMessage>;
using Down = std::vector<CoordinatorMessage>;

constexpr int kMaxSeeds = 300;

struct PlantedBug {
  const char* name;
  // Seams for one run: what they capture lives as long as the run.
  std::function<Seams()> plant;
};
std::ostream& operator<<(std::ostream& out, const PlantedBug& bug) { return out << bug.name; }

// --- disks ---

// Says that a batch is durable while it is still on its way.
class EagerStore final : public SimStore {
 public:
  using SimStore::SimStore;
  void Commit(std::vector<StoreOperation> operations, Done done) override {
    SimStore::Commit(std::move(operations), [](const Status&) {});
    queue_.After(Duration::zero(), [done = std::move(done), life = life_, this] {
      if (life == life_) done(OkStatus());
    });
  }
};

// Leaves out the operations that `drop` names.
class ForgetfulStore final : public SimStore {
 public:
  using Drop = std::function<bool(StoreOperation&)>;
  ForgetfulStore(EventQueue& queue, Random& random, Drop drop)
      : SimStore(queue, random), drop_(std::move(drop)) {}
  void Commit(std::vector<StoreOperation> operations, Done done) override {
    std::erase_if(operations, [this](StoreOperation& operation) { return drop_(operation); });
    SimStore::Commit(std::move(operations), std::move(done));
  }

 private:
  const Drop drop_;
};

// What `change` does to it is what the next coordinator finds: as with a record codec that lacks a
// field.
class LossyStore final : public SimStore {
 public:
  using Change = std::function<void(StoredState&)>;
  LossyStore(EventQueue& queue, Random& random, Change change)
      : SimStore(queue, random), change_(std::move(change)) {}
  Result<StoredState> Load() override {
    Result<StoredState> state = SimStore::Load();
    change_(*state);
    return state;
  }

 private:
  const Change change_;
};

Seams Restores(LossyStore::Change change) {
  Seams seams;
  seams.make_store = [change](EventQueue& queue, Random& random) -> std::unique_ptr<SimStore> {
    return std::make_unique<LossyStore>(queue, random, change);
  };
  return seams;
}

Seams Forgets(ForgetfulStore::Drop drop) {
  Seams seams;
  seams.make_store = [drop](EventQueue& queue, Random& random) -> std::unique_ptr<SimStore> {
    return std::make_unique<ForgetfulStore>(queue, random, drop);
  };
  return seams;
}

// --- messages ---

// Every message of type Message goes through `change`; false: it is lost.
template <typename Message>
Seams ChangesUp(std::function<bool(Message&)> change) {
  Seams seams;
  seams.to_coordinator = [change](int, WorkerMessage message) {
    auto* found = std::get_if<Message>(&message);
    if (found != nullptr && !change(*found)) return Up{};
    return Up{std::move(message)};
  };
  return seams;
}

template <typename Message>
Seams ChangesDown(std::function<bool(Message&)> change) {
  Seams seams;
  seams.to_worker = [change](int, CoordinatorMessage message) {
    auto* found = std::get_if<Message>(&message);
    if (found != nullptr && !change(*found)) return Down{};
    return Down{std::move(message)};
  };
  return seams;
}

// One shard of a rank stands for those of all.
Seams CountsOneShardForAll() {
  Seams seams;
  seams.to_coordinator = [](int, WorkerMessage message) {
    Up all{message};
    auto* report = std::get_if<TrainerReport>(&message);
    if (report == nullptr || !std::holds_alternative<ShardWritten>(report->body)) return all;
    const int rank = report->rank;
    for (const int other : {rank ^ 1, rank ^ 2, rank ^ 3}) {
      report->rank = other;
      ShardInfo& shard = std::get<ShardWritten>(report->body).shard;
      shard.rank = other;
      shard.file = ShardFileName(other);
      all.push_back(message);
    }
    return all;
  };
  return seams;
}

// Each commit has the one before removed, which no client has asked for.
Seams PrunesBeforeTheNewerIsVerified() {
  Seams seams;
  auto newest = std::make_shared<std::map<JobId, std::string>>();
  seams.to_worker = [newest](int, CoordinatorMessage message) {
    if (auto* committed = std::get_if<CheckpointCommitted>(&message)) {
      std::string& before = (*newest)[committed->job];
      const std::string& directory = committed->checkpoint.directory;
      if (!before.empty() && before != directory) committed->prune.push_back(before);
      before = directory;
    }
    return Down{std::move(message)};
  };
  return seams;
}

// --- generations ---

// A node's proof of an old generation, which a stream that has broken delivers late, counts for the
// one that has begun since.
Seams SkipsTheCheckOfProofs() {
  Seams seams;
  auto old = std::make_shared<std::map<std::pair<int, JobId>, Quiesced>>();
  seams.to_coordinator = [old](int node, WorkerMessage message) {
    Up all{message};
    if (const auto* quiesced = std::get_if<Quiesced>(&message)) {
      (*old)[{node, quiesced->job}] = *quiesced;
    } else if (const auto* started = std::get_if<RankStarted>(&message)) {
      if (auto late = old->extract({node, started->job})) {
        late.mapped().generation = started->generation;
        all.push_back(late.mapped());
      }
    }
    return all;
  };
  return seams;
}

// --- cuts ---

using Claims = std::vector<std::vector<ShardClaim>>;

Seams Chooses(std::function<std::optional<Cut>(Claims)> choose) {
  Seams seams;
  seams.choose_cut = [choose](const Claims& claims) { return choose(claims); };
  return seams;
}

std::optional<Cut> IgnoringLineage(Claims claims) {
  for (auto& rank : claims) {
    for (ShardClaim& claim : rank) claim.state.lineage = 1;
  }
  std::optional<Cut> cut = ChooseCut(claims);
  return cut;
}

// The one before the newest.
std::optional<Cut> OneTooOld(Claims claims) {
  const std::optional<Cut> newest = ChooseCut(claims);
  if (!newest) return newest;
  for (auto& rank : claims) {
    std::erase_if(
        rank, [&](const ShardClaim& claim) { return claim.state.step >= newest->state.step - 1; });
  }
  return ChooseCut(claims);
}

const PlantedBug kBugs[] = {
    {"StoreAcknowledgesBeforeItsCommit",
     [] {
       Seams seams;
       seams.make_store = [](EventQueue& queue, Random& random) -> std::unique_ptr<SimStore> {
         return std::make_unique<EagerStore>(queue, random);
       };
       return seams;
     }},
    {"StoreLosesSubmittedJobs",
     [] {
       return Forgets([](StoreOperation& operation) {
         const auto* put = std::get_if<PutJob>(&operation);
         return put != nullptr && put->job.state == JobState::kQueued;
       });
     }},
    {"StoreForgetsThatAJobIsCancelled",
     [] {
       return Forgets([](StoreOperation& operation) {
         auto* put = std::get_if<PutJob>(&operation);
         if (put == nullptr || put->job.stop == StopKind::kNone) return false;
         put->job.stop = StopKind::kNone;
         return true;
       });
     }},
    {"StoreForgetsThatAJobIsSuspended",
     [] {
       return Forgets([](StoreOperation& operation) {
         const auto* put = std::get_if<PutJob>(&operation);
         return put != nullptr && put->job.stop == StopKind::kSuspend;
       });
     }},
    {"TheTokenIsNotRestored",
     [] {
       return Restores([](StoredState& state) {
         for (AttemptRecord& attempt : state.attempts) attempt.rendezvous_token.clear();
       });
     }},
    {"WhatIsToBeReleasedIsNotRestored",
     [] {
       return Restores([](StoredState& state) {
         for (JobRecord& job : state.jobs) job.pending_release.clear();
       });
     }},
    {"TwoNodesOfAGangHaveDifferentTokens",
     [] {
       Seams seams;
       seams.to_worker = [](int node, CoordinatorMessage message) {
         auto* launch = std::get_if<Launch>(&message);
         if (launch != nullptr && node == 1) launch->rendezvous_token += "-1";
         return Down{std::move(message)};
       };
       return seams;
     }},
    {"OneShardCountsForAll", [] { return CountsOneShardForAll(); }},
    {"FailedExitsAreTakenForGood",
     [] {
       return ChangesUp<RankExited>([](RankExited& exited) {
         exited.end.exit = {};
         return true;
       });
     }},
    {"ExitsAreNotReported",
     [] { return ChangesUp<RankExited>([](RankExited&) { return false; }); }},
    {"ExitsAreReportedOfTheWrongRank",
     [] {
       return ChangesUp<RankExited>([](RankExited& exited) {
         exited.rank ^= 1;
         return true;
       });
     }},
    {"UnkillableProcessesAreNotTold",
     [] {
       return ChangesUp<Quiesced>([](Quiesced& quiesced) {
         quiesced.unkillable_pids.clear();
         return true;
       });
     }},
    {"ParkedProcessesAreNotTold",
     [] {
       Seams seams = ChangesUp<Quiesced>([](Quiesced& quiesced) {
         quiesced.parked_ranks.clear();
         quiesced.standbys = 0;
         return true;
       });
       // Nor may survivors stay: nothing is counted for them.
       seams.to_worker = [](int, CoordinatorMessage message) {
         if (auto* abort = std::get_if<Abort>(&message)) abort->park_seconds = 1;
         return Down{std::move(message)};
       };
       return seams;
     }},
    {"ASlotIsProvedEmptyByAskingForIt",
     [] {
       Seams seams;
       auto asked = std::make_shared<std::map<std::pair<int, JobId>, Generation>>();
       seams.to_worker = [asked](int node, CoordinatorMessage message) {
         const auto* abort = std::get_if<Abort>(&message);
         if (abort == nullptr) return Down{std::move(message)};
         (*asked)[{node, abort->job}] = abort->generation;
         return Down{};
       };
       // The next thing that the node says is taken for the proof.
       seams.to_coordinator = [asked](int node, WorkerMessage message) {
         Up all{std::move(message)};
         for (const auto& [key, generation] : *asked) {
           if (key.first == node)
             all.push_back(Quiesced{.job = key.second, .generation = generation});
         }
         std::erase_if(*asked, [node](const auto& entry) { return entry.first.first == node; });
         return all;
       };
       return seams;
     }},
    {"HelloForgetsWhatRuns",
     [] {
       Seams seams;
       seams.hello = [](Hello& hello) { hello.hosted.clear(); };
       return seams;
     }},
    {"HelloSaysThatAllIsQuiet",
     [] {
       Seams seams;
       seams.hello = [](Hello& hello) {
         for (HostedGeneration& hosted : hello.hosted) hosted.quiesced = true;
       };
       return seams;
     }},
    {"ProofsSkipTheGenerationCheck", [] { return SkipsTheCheckOfProofs(); }},
    {"LaunchesAreLost", [] { return ChangesDown<Launch>([](Launch&) { return false; }); }},
    {"ReleasesAreLost", [] { return ChangesDown<Release>([](Release&) { return false; }); }},
    {"TheNewestCheckpointIsPruned",
     [] {
       return ChangesDown<CheckpointCommitted>([](CheckpointCommitted& committed) {
         committed.prune.push_back(committed.checkpoint.directory);
         return true;
       });
     }},
    {"TheCheckpointBeforeIsPrunedWithEachCommit", [] { return PrunesBeforeTheNewerIsVerified(); }},
    {"CommitRecordsAreReportedAndNotWritten",
     [] {
       Seams seams;
       auto asked = std::make_shared<std::map<int, std::vector<CheckpointCommitted>>>();
       seams.to_worker = [asked](int node, CoordinatorMessage message) {
         const auto* committed = std::get_if<CheckpointCommitted>(&message);
         if (committed == nullptr) return Down{std::move(message)};
         (*asked)[node].push_back(*committed);
         return Down{};
       };
       seams.to_coordinator = [asked](int node, WorkerMessage message) {
         Up all{std::move(message)};
         for (const CheckpointCommitted& each : std::exchange((*asked)[node], {})) {
           all.push_back(ManifestWritten{.job = each.job,
                                         .generation = each.generation,
                                         .directory = each.checkpoint.directory,
                                         .pruned = each.prune});
         }
         return all;
       };
       return seams;
     }},
    {"HangsAreNotSeen", [] { return ChangesUp<Progress>([](Progress&) { return false; }); }},
    {"SnapshotsAreSealedLate",
     [] {
       Seams seams;
       seams.trainers = [](TrainerContext& context) { context.seals_late = true; };
       return seams;
     }},
    {"BuddiesAreSealedBeforeTheyAreWhole",
     [] {
       Seams seams;
       seams.trainers = [](TrainerContext& context) { context.buddy_seals_early = true; };
       return seams;
     }},
    {"TheCutMixesLineages", [] { return Chooses(IgnoringLineage); }},
    {"TheCutIsOneStepTooOld", [] { return Chooses(OneTooOld); }},
};

class PlantedBugTest : public ::testing::TestWithParam<PlantedBug> {};

TEST_P(PlantedBugTest, IsFound) {
  for (int seed = 0; seed < kMaxSeeds; ++seed) {
    WorldOptions options{
        .seed = static_cast<std::uint64_t>(seed), .min_nodes = 4, .max_nodes = 16, .jobs = 12};
    const RunResult result = World(options, GetParam().plant()).Run();
    if (!result.violation) continue;
    if (World(options).Run().violation) continue;  // not this bug's doing
    RecordProperty("seed", seed);
    RecordProperty("invariant", result.violation->invariant);
    std::printf("found by seed %d: %s: %s\n", seed, result.violation->invariant.c_str(),
                result.violation->what.c_str());
    return;
  }
  FAIL() << "no seed of " << kMaxSeeds << " sees it";
}

INSTANTIATE_TEST_SUITE_P(Bugs, PlantedBugTest, ::testing::ValuesIn(kBugs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace muster::sim
