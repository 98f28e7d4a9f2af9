#include "coordinator/service/probation.h"

#include <gmock/gmock.h>

namespace muster {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

const TimePoint kStart = TimePoint(std::chrono::hours(1));

class ProbationTest : public ::testing::Test {
 protected:
  Probation probation_{{.connections = 2, .bytes = 100, .bytes_of_all = 150, .time = 30s}};
  std::vector<Probation::Id> gone_;
};

TEST_F(ProbationTest, ThereIsRoomUntilItIsFull) {
  EXPECT_EQ(probation_.MakeRoom(kStart, &gone_), Duration::zero());
  probation_.Begin(1, kStart);
  EXPECT_EQ(probation_.MakeRoom(kStart, &gone_), Duration::zero());
  probation_.Begin(2, kStart + 10ms);
  EXPECT_EQ(probation_.MakeRoom(kStart + 10ms, &gone_), Probation::kSilentTimeout - 10ms);
  EXPECT_THAT(gone_, IsEmpty());
  probation_.End(1);
  EXPECT_EQ(probation_.MakeRoom(kStart + 10ms, &gone_), Duration::zero());
}

TEST_F(ProbationTest, TheSilentGiveWaySoonAndTheOthersLater) {
  probation_.Begin(1, kStart);
  probation_.Begin(2, kStart + 10ms);
  probation_.Sent(1, 5, 0, kStart);
  EXPECT_EQ(probation_.MakeRoom(kStart + 60ms, &gone_), Duration::zero());
  EXPECT_THAT(gone_, ElementsAre(2)) << "the first has spoken";
  probation_.Begin(3, kStart + 60ms);
  probation_.Sent(3, 5, 0, kStart);
  EXPECT_EQ(probation_.MakeRoom(kStart + 100ms, &gone_), Probation::kTimeout - 100ms);
  EXPECT_EQ(probation_.MakeRoom(kStart + Probation::kTimeout, &gone_), Duration::zero());
  EXPECT_THAT(gone_, ElementsAre(2, 1));
}

TEST_F(ProbationTest, WhoSendsTooMuchGoes) {
  probation_.Begin(1, kStart);
  probation_.Begin(2, kStart);
  probation_.Sent(1, 100, 0, kStart);
  EXPECT_THAT(probation_.TakeOverdue(kStart), IsEmpty());
  probation_.Sent(1, 101, 0, kStart);
  EXPECT_THAT(probation_.TakeOverdue(kStart), ElementsAre(1));
  EXPECT_EQ(probation_.size(), 1u);
}

TEST_F(ProbationTest, WhoHasSentTheMostGoesWhereAllTogetherSendTooMuch) {
  probation_.Begin(1, kStart);
  probation_.Begin(2, kStart);
  probation_.Sent(1, 70, 0, kStart);
  probation_.Sent(2, 80, 0, kStart);
  EXPECT_THAT(probation_.TakeOverdue(kStart), IsEmpty());
  probation_.Sent(2, 81, 0, kStart);
  EXPECT_THAT(probation_.TakeOverdue(kStart), ElementsAre(2));
  EXPECT_THAT(probation_.TakeOverdue(kStart), IsEmpty()) << "what it sent counts no longer";
}

TEST_F(ProbationTest, WhoIsNotAdmittedInTimeGoes) {
  probation_.Begin(1, kStart);
  probation_.Begin(2, kStart + 1s);
  EXPECT_THAT(probation_.TakeOverdue(kStart + 30s - 1ms), IsEmpty());
  EXPECT_THAT(probation_.TakeOverdue(kStart + 30s), ElementsAre(1));
}

TEST_F(ProbationTest, WhoSendsFasterThanItIsReadForLongGoes) {
  constexpr std::uint64_t kMore = Probation::kBehind + 1;
  probation_.Begin(1, kStart);
  probation_.Sent(1, 10, kMore, kStart);
  probation_.Sent(1, 10, kMore, kStart + 60ms);
  EXPECT_THAT(probation_.TakeOverdue(kStart + 99ms), IsEmpty());
  probation_.Sent(1, 10, Probation::kBehind, kStart + 99ms);
  EXPECT_THAT(probation_.TakeOverdue(kStart + 100ms), IsEmpty()) << "it was read";
  probation_.Sent(1, 10, kMore, kStart + 150ms);
  EXPECT_THAT(probation_.TakeOverdue(kStart + 249ms), IsEmpty());
  EXPECT_THAT(probation_.TakeOverdue(kStart + 250ms), ElementsAre(1));
}

TEST_F(ProbationTest, OfThoseThatSendFasterThanTheyAreReadTheFirstStays) {
  constexpr std::uint64_t kMore = Probation::kBehind + 1;
  probation_.Begin(1, kStart);
  probation_.Begin(2, kStart);
  probation_.Sent(2, 10, kMore, kStart);
  EXPECT_THAT(probation_.TakeOverdue(kStart), IsEmpty());
  probation_.Sent(1, 10, kMore, kStart + 20ms);
  EXPECT_THAT(probation_.TakeOverdue(kStart + 20ms), ElementsAre(1));
}

TEST_F(ProbationTest, OneThatIsGoneIsNotCounted) {
  probation_.Begin(1, kStart);
  probation_.Sent(1, 90, 0, kStart);
  probation_.End(1);
  probation_.End(1);
  probation_.Sent(1, 500, 0, kStart);
  EXPECT_EQ(probation_.size(), 0u);
  probation_.Begin(2, kStart);
  probation_.Sent(2, 90, 0, kStart);
  EXPECT_THAT(probation_.TakeOverdue(kStart), IsEmpty());
}

}  // namespace
}  // namespace muster
