#include "coordinator/store/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/store/testing/journal_model.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

JournalOptions Options(const std::string& node) {
  return {.dir = "/j", .node = node, .pid = 7, .snapshot_commits = 4};
}

std::string Operation(const std::string& node, const std::string& text) {
  std::string payload;
  AppendOperation(JournalOperation{JournalOperation::Kind::kPutNode, 0, node, {}, text}, &payload);
  return payload;
}

// One alone, over a disk in memory.
class JournalTest : public ::testing::Test {
 protected:
  std::unique_ptr<Journal> Open(const std::string& node) {
    auto journal = Journal::Open(files_, Options(node));
    EXPECT_TRUE(journal.ok()) << journal.status().ToString();
    return journal.ok() ? *std::move(journal) : nullptr;
  }
  Status OpenError() { return Journal::Open(files_, Options("n9")).status(); }
  std::vector<std::string> Names(const std::string& directory) {
    std::vector<std::string> names;
    files_.List("/j/" + directory, &names);
    for (std::string& name : names) name.erase(0, name.find_first_not_of('0'));
    return names;
  }
  static std::string Log(std::uint64_t number) { return "/j/log/" + NumberedName(number); }

  ModelDiskForTest disk_;
  ModelFilesForTest files_{disk_, nullptr, 0};
};

TEST_F(JournalTest, AnOlderCoordinatorIsFencedAtItsNextCommitByNameOfTheOther) {
  const auto old = Open("n1");
  ASSERT_TRUE(old->Append(Operation("a", "1")).ok());
  EXPECT_TRUE(old->CheckFence().ok());
  const auto young = Open("n2");
  EXPECT_EQ(young->epoch(), old->epoch() + 1);
  EXPECT_EQ(old->CheckFence().code(), StatusCode::kAborted);
  const Status fenced = old->Append(Operation("a", "2"));
  EXPECT_EQ(fenced.code(), StatusCode::kAborted);
  EXPECT_THAT(fenced.message(), HasSubstr("epoch 2 on node n2 (pid 7) has taken over"));
  ASSERT_TRUE(young->Append(Operation("a", "3")).ok());
  const std::string written = young->image().Snapshot();
  EXPECT_THAT(Open("n3")->image().Snapshot(), StartsWith(written));
}

TEST_F(JournalTest, ASnapshotReplacesOlderCommitsButThoseThatBeganAnEpoch) {
  auto journal = Open("n1");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(journal->Append(Operation("a", std::to_string(i))).ok());
    journal->CompactIfDue();
  }
  EXPECT_THAT(Names("snapshot"), ElementsAre("4"));
  EXPECT_THAT(Names("log"), ElementsAre("1", "2", "3", "4")) << "needed if the snapshot is damaged";
  journal = Open("n2");
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(journal->Append(Operation("b", std::to_string(i))).ok());
    journal->CompactIfDue();
  }
  EXPECT_THAT(Names("snapshot"), ElementsAre("4", "8"));
  EXPECT_THAT(Names("log"), ElementsAre("1", "5", "6", "7", "8"));
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(journal->Append(Operation("c", std::to_string(i))).ok());
    journal->CompactIfDue();
  }
  EXPECT_THAT(Names("snapshot"), ElementsAre("8", "12"));
  EXPECT_THAT(Names("log"), ElementsAre("1", "5", "9", "10", "11", "12"));
  const std::string before = journal->image().Snapshot();
  EXPECT_THAT(Open("n3")->image().Snapshot(), StartsWith(before));
}

TEST_F(JournalTest, ADamagedSnapshotIsReplacedByTheOneBeforeAndTheCommitsSince) {
  auto journal = Open("n1");
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(journal->Append(Operation("a", std::to_string(i))).ok());
    journal->CompactIfDue();
  }
  const std::string before = journal->image().Snapshot();
  disk_.files["/j/snapshot/" + NumberedName(8)].back() ^= 1;
  std::vector<std::string> warnings;
  JournalOptions options = Options("n2");
  options.warn = [&](const std::string& warning) { warnings.push_back(warning); };
  const auto reopened = Journal::Open(files_, options);
  ASSERT_TRUE(reopened.ok()) << reopened.status().ToString();
  EXPECT_THAT((*reopened)->image().Snapshot(), StartsWith(before));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("checksum differs")));
}

TEST_F(JournalTest, ADamagedCommitIsNamedWithItsFileAndByte) {
  auto journal = Open("n1");
  ASSERT_TRUE(journal->Append(Operation("a", "1")).ok());
  ASSERT_TRUE(journal->Append(Operation("a", "2")).ok());
  const std::string whole = disk_.files[Log(2)];
  for (const std::size_t byte : {std::size_t{0}, std::size_t{17}, whole.size() - 1}) {
    disk_.files[Log(2)] = whole;
    disk_.files[Log(2)][byte] ^= 1;
    const Status status = OpenError();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.ToString();
    EXPECT_THAT(status.message(), HasSubstr(Log(2) + " is damaged at byte"));
    EXPECT_THAT(status.message(), HasSubstr("restore the file"));
  }
  for (std::size_t length = 0; length < whole.size(); ++length) {
    disk_.files[Log(2)] = whole.substr(0, length);
    EXPECT_EQ(OpenError().code(), StatusCode::kDataLoss) << length;
  }
}

TEST_F(JournalTest, AMissingCommitIsNamedAndNotPassedOver) {
  auto journal = Open("n1");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(journal->Append(Operation("a", "1")).ok());
  disk_.files.erase(Log(2));
  const Status status = OpenError();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(Log(2) + " is missing"));
}

TEST_F(JournalTest, ACommitUnderAnotherNameIsRefused) {
  auto journal = Open("n1");
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(journal->Append(Operation("a", "1")).ok());
  disk_.files[Log(3)] = disk_.files[Log(2)];
  EXPECT_THAT(OpenError().message(), HasSubstr(Log(3) + " is not the commit"));
}

TEST_F(JournalTest, AnotherVersionIsRefusedWithBothNumbers) {
  auto journal = Open("n1");
  disk_.files[Log(1)][8] = 9;
  const Status status = OpenError();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr("version 9"));
  EXPECT_THAT(status.message(), HasSubstr("knows 3 to 6"));
}

// The model loses the answer to every seventh link.
TEST_F(JournalTest, ALostAnswerOfTheFileServerFencesNoCoordinator) {
  auto journal = Open("n1");
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(journal->Append(Operation("a", "1")).ok()) << i;
  EXPECT_EQ(journal->number(), 21u);
}

TEST_F(JournalTest, WhatAnotherProcessLeftHalfWrittenIsRemoved) {
  auto journal = Open("n1");
  disk_.files["/j/log/.tmp-" + NumberedName(1) + "-5"] = "half";
  disk_.files["/j/log/.tmp-" + NumberedName(99) + "-5"] = "of one that starts after us";
  journal = Open("n2");
  EXPECT_FALSE(disk_.files.contains("/j/log/.tmp-" + NumberedName(1) + "-5"));
  EXPECT_TRUE(disk_.files.contains("/j/log/.tmp-" + NumberedName(99) + "-5"));
}

// --- two or three at once, in every order that a seed draws ---

struct Acknowledged {
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  std::string key;
};

class Rivals {
 public:
  explicit Rivals(unsigned seed) : turns_(seed, kRivals) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kRivals; ++i) threads.emplace_back([this, i] { Live(i); });
    for (std::thread& thread : threads) thread.join();
  }

  // What a coordinator finds that comes after all of them.
  void Check() {
    ModelFilesForTest files(disk_, nullptr, kRivals);
    const auto last = Journal::Open(files, Options("last"));
    ASSERT_TRUE(last.ok()) << last.status().ToString();
    const auto state = (*last)->image().Snapshot();
    std::map<std::uint64_t, std::uint64_t> epochs;  // by number
    std::size_t acknowledged = 0;
    for (const auto& of_one : acknowledged_) {
      for (const Acknowledged& one : of_one) {
        EXPECT_TRUE(epochs.emplace(one.number, one.epoch).second)
            << "commit " << one.number << " was acknowledged twice";
        EXPECT_NE(state.find(one.key), std::string::npos) << one.key << " is lost";
        ++acknowledged;
      }
    }
    std::uint64_t epoch = 0;
    for (const auto& [number, of_number] : epochs) {
      EXPECT_GE(of_number, epoch) << "commit " << number << " came after a takeover";
      epoch = of_number;
    }
    EXPECT_GT(acknowledged, 0u);
  }

  static constexpr int kRivals = 3;

 private:
  // Starts, commits, and starts again when it was fenced, as a node's supervisor would have it.
  void Live(int thread) {
    turns_.Join(thread);
    ModelFilesForTest files(disk_, &turns_, thread);
    for (int life = 0; life < 3; ++life) {
      const auto journal = Journal::Open(files, Options("n" + std::to_string(thread)));
      if (!journal.ok()) {
        EXPECT_EQ(journal.status().code(), StatusCode::kAborted) << journal.status().ToString();
        continue;
      }
      for (int i = 0; i < 12; ++i) {
        const std::string key =
            "<" + std::to_string((*journal)->epoch()) + "." + std::to_string(i) + ">";
        if (const Status status = (*journal)->Append(Operation(key, "x")); !status.ok()) {
          EXPECT_EQ(status.code(), StatusCode::kAborted) << status.ToString();
          break;
        }
        acknowledged_[thread].push_back({(*journal)->epoch(), (*journal)->number(), key});
        (*journal)->CompactIfDue();
      }
    }
    turns_.Leave(thread);
  }

  ModelDiskForTest disk_;
  TurnsForTest turns_;
  std::vector<Acknowledged> acknowledged_[kRivals];
};

TEST(JournalRivalsTest, EveryInterleavingKeepsOneLineOfCommitsAndLosesNone) {
  for (unsigned seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rivals(seed).Check();
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace muster
