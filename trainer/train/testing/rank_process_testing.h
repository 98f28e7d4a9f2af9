// RankProcessTest: jobs whose ranks are processes in threads (guardian_testing.h) on one node.
// Header of tests only.
#pragma once

#include <memory>
#include <vector>

#include "tests/support/saved_environment.h"
#include "trainer/train/testing/guardian_testing.h"

namespace muster {

class RankProcessTest : public TrainerTest {
 private:
  // Assignments put theirs into the process's.
  SavedEnvironment environment_;

 protected:
  using Gang = std::vector<std::unique_ptr<TestProcess>>;

  void SetUp() override {
    TrainerTest::SetUp();
    resume_file_ = dir_ + "/resume.json";
    ASSERT_TRUE(WriteFileAtomically(resume_file_, "[]").ok());
  }

  // A job for `ranks` ranks that does not end by itself within a test.
  JobSpec Endless(const std::string& output, int ranks) const {
    JobSpec spec = Spec(output);
    spec.resources.ranks_per_node = ranks;
    spec.train->schedule.max_steps = 1'000'000;
    spec.train->checkpoint.every = 1'000'000;
    return spec;
  }
  std::unique_ptr<TestProcess> StartOne(const JobSpec& spec) {
    return std::make_unique<TestProcess>(spec, node_);
  }
  Gang Start(const JobSpec& spec, int processes) {
    Gang gang;
    for (int i = 0; i < processes; ++i) gang.push_back(StartOne(spec));
    return gang;
  }
  // The processes get the ranks 0, 1, ... in this order.
  void Assign(Generation generation, const std::vector<TestProcess*>& processes) const {
    testing::Listener master = testing::Listen();
    const int size = static_cast<int>(processes.size());
    for (int rank = 0; rank < size; ++rank) {
      processes[static_cast<std::size_t>(rank)]->Assign(generation, rank, size, master,
                                                        resume_file_, ranks_per_node_);
    }
  }
  static void ExpectFirstStep(const Gang& gang, Generation generation) {
    for (const auto& each : gang) EXPECT_FALSE(each->Await("first_step", generation).is_null());
  }
  static void ParkAll(const Gang& gang, Generation generation) {
    for (const auto& each : gang) each->Park(generation);
    for (const auto& each : gang) EXPECT_FALSE(each->Await("parked", generation).is_null());
  }
  static void ExpectDone(const Gang& gang) {
    for (const auto& each : gang) {
      const TrainStatus failure = each->AwaitEnd();
      EXPECT_TRUE(failure.ok()) << failure.message();
    }
  }

  TestNode node_;
  int ranks_per_node_ = 0;  // 0: all on one
};

}  // namespace muster
