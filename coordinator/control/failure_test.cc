#include "coordinator/control/failure.h"

#include <gtest/gtest.h>

#include <csignal>

namespace muster {
namespace {

NodeName MakeName(const char* name) { return NodeName{name}; }

RankFailure Exit(int code, int signal) {
  RankFailure failure;
  failure.rank = 1;
  failure.node = MakeName("n2");
  failure.exit = ProcessExit{code, signal};
  return failure;
}

TimePoint At(int ms) { return TimePoint(std::chrono::milliseconds(ms)); }

Failure Happened(CauseKind kind, int rank, int ms) {
  Failure failure;
  failure.kind = kind;
  failure.rank = rank;
  failure.at = At(ms);
  return failure;
}

TEST(ClassifyTest, SignalIsNamed) {
  const Failure failure = Classify(Exit(0, SIGKILL));
  EXPECT_EQ(failure.kind, CauseKind::kRankKilled);
  EXPECT_EQ(failure.message, "rank 1 on n2 was killed by SIGKILL");
  EXPECT_TRUE(failure.retryable);
  EXPECT_FALSE(failure.symptom());
}

TEST(ClassifyTest, ANodeThatWasTakenDownIsTheCauseOfAllThatFollows) {
  RankFailure stopped = Exit(0, SIGKILL);
  stopped.node_stopped = true;
  const Failure cause = Classify(stopped);
  EXPECT_EQ(cause.kind, CauseKind::kNodeStopped);
  EXPECT_EQ(cause.message, "node n2 was taken down");
  EXPECT_TRUE(cause.retryable);
  Failure earlier = Classify(Exit(1, 0));
  earlier.at = cause.at - std::chrono::seconds(1);
  EXPECT_EQ(PrimaryFailure({earlier, cause})->kind, CauseKind::kNodeStopped);
}

TEST(ClassifyTest, ExitCodesOfTheTrainer) {
  EXPECT_EQ(Classify(Exit(1, 0)).kind, CauseKind::kRankExited);
  EXPECT_EQ(Classify(Exit(2, 0)).kind, CauseKind::kBadInput);
  EXPECT_TRUE(Classify(Exit(76, 0)).symptom());
  EXPECT_EQ(Classify(Exit(78, 0)).kind, CauseKind::kBadInput);
  EXPECT_FALSE(Classify(Exit(78, 0)).retryable);
  EXPECT_EQ(Classify(Exit(79, 0)).kind, CauseKind::kNonFinite);
  EXPECT_FALSE(Classify(Exit(79, 0)).retryable);
}

TEST(ClassifyTest, ExitCodesOfACommandSayNothingMore) {
  for (int code : {2, 76, 78, 79}) {
    RankFailure failure = Exit(code, 0);
    failure.train = false;
    EXPECT_EQ(Classify(failure).kind, CauseKind::kRankExited) << code;
    EXPECT_TRUE(Classify(failure).retryable) << code;
  }
}

TEST(ClassifyTest, TheTrainersErrorIsReported) {
  RankFailure failure = Exit(78, 0);
  failure.error = TrainerError{.kind = "data", .message = "train.jsonl:12: no messages", .step = 0};
  EXPECT_EQ(Classify(failure).message,
            "rank 1 on n2 exited with code 78: train.jsonl:12: no messages");
  failure = Exit(1, 0);
  failure.error = TrainerError{.kind = "nonfinite", .message = "loss is NaN", .step = 7};
  EXPECT_EQ(Classify(failure).kind, CauseKind::kNonFinite);
  failure.error = TrainerError{.kind = "out_of_memory", .message = "", .step = 7};
  EXPECT_EQ(Classify(failure).kind, CauseKind::kOutOfMemory);
  EXPECT_TRUE(Classify(failure).retryable) << "once; the restart policy counts";
  failure.error->message = "std::bad_alloc";
  EXPECT_EQ(Classify(failure).message, "rank 1 on n2 ran out of memory: std::bad_alloc");
  failure.error = TrainerError{.kind = "io", .message = "disk full", .step = 7};
  EXPECT_TRUE(Classify(failure).retryable);
}

TEST(ClassifyTest, TheKernelsReportOutranksTheSignal) {
  RankFailure failure = Exit(0, SIGKILL);
  failure.out_of_memory = true;
  failure.ended = true;
  EXPECT_FALSE(IsConsequenceOfAbort(failure));
  EXPECT_EQ(Classify(failure).kind, CauseKind::kOutOfMemory);
  EXPECT_EQ(Classify(failure).message,
            "rank 1 on n2 was killed by the kernel: its memory had run out");
}

TEST(ClassifyTest, ASignalOutranksAReportOfLostPeers) {
  RankFailure failure = Exit(0, SIGSEGV);
  failure.error = TrainerError{.kind = "peer_lost", .message = "rank 0 is gone", .step = 7};
  EXPECT_EQ(Classify(failure).kind, CauseKind::kRankKilled);
  failure.exit = ProcessExit{1, 0};
  EXPECT_EQ(Classify(failure).kind, CauseKind::kPeerLost);
}

TEST(ClassifyTest, ATrainerThatHangsAfterItsReport) {
  RankFailure failure = Exit(0, 0);
  failure.exit.reset();
  failure.error = TrainerError{.kind = "internal", .message = "broken", .step = 7};
  EXPECT_EQ(Classify(failure).message, "rank 1 on n2 reported an error and did not exit: broken");
}

TEST(PrimaryFailureTest, TheCauseIsNotASymptomHoweverLateItArrives) {
  const std::vector<Failure> failures = {Happened(CauseKind::kPeerLost, 1, 5),
                                         Happened(CauseKind::kRankExited, 2, 9),
                                         Happened(CauseKind::kRankKilled, 0, 8)};
  EXPECT_EQ(PrimaryFailure(failures)->rank, 0);
}

TEST(PrimaryFailureTest, ANanIsTheFaultOfTheRankThatMadeItWhicheverReportsFirst) {
  RankFailure other = Exit(79, 0);
  other.error = TrainerError{.kind = "nonfinite",
                             .message = "step 7: not finite is rank 2: loss",
                             .step = 7,
                             .symptom = true};
  RankFailure culprit = other;
  culprit.rank = 2;
  culprit.error->symptom = false;
  Failure first = Classify(other), second = Classify(culprit);
  EXPECT_TRUE(first.symptom());
  EXPECT_FALSE(second.symptom());
  second.at = first.at + std::chrono::milliseconds(5);
  EXPECT_EQ(PrimaryFailure({first, second})->rank, 2);
  EXPECT_EQ(PrimaryFailure({first})->kind, CauseKind::kNonFinite) << "where nobody else tells";
}

TEST(PrimaryFailureTest, WithoutACauseTheFirstSymptomStands) {
  const std::vector<Failure> failures = {Happened(CauseKind::kPeerLost, 2, 7),
                                         Happened(CauseKind::kPeerLost, 1, 5)};
  EXPECT_EQ(PrimaryFailure(failures)->rank, 1);
  EXPECT_EQ(PrimaryFailure({}), nullptr);
}

TEST(PrimaryFailureTest, TiesGoToTheLowerRank) {
  const std::vector<Failure> failures = {Happened(CauseKind::kRankKilled, 3, 5),
                                         Happened(CauseKind::kRankKilled, 2, 5)};
  EXPECT_EQ(PrimaryFailure(failures)->rank, 2);
}

TEST(ConsequenceOfAbortTest, OnlyASignalOfTheGuardianToARankWithoutAReport) {
  RankFailure failure = Exit(0, SIGKILL);
  EXPECT_FALSE(IsConsequenceOfAbort(failure)) << "it was killed by somebody else";
  failure.ended = true;
  EXPECT_TRUE(IsConsequenceOfAbort(failure));
  failure.exit = ProcessExit{0, SIGTERM};
  EXPECT_TRUE(IsConsequenceOfAbort(failure));
  failure.error = TrainerError{.kind = "peer_lost", .message = "rank 1 is gone", .step = 3};
  EXPECT_TRUE(IsConsequenceOfAbort(failure));
  failure.exit = ProcessExit{0, SIGSEGV};
  EXPECT_FALSE(IsConsequenceOfAbort(failure));
  failure.exit = ProcessExit{3, 0};
  EXPECT_FALSE(IsConsequenceOfAbort(failure));
  failure.exit = ProcessExit{0, SIGKILL};
  failure.node_stopped = true;
  EXPECT_FALSE(IsConsequenceOfAbort(failure));
}

TEST(ConsequenceOfAbortTest, AnErrorReportedBeforeTheSignalIsTheCause) {
  RankFailure failure = Exit(0, SIGKILL);
  failure.ended = true;
  failure.error = TrainerError{.kind = "data", .message = "train.jsonl:7: no JSON", .step = 0};
  EXPECT_FALSE(IsConsequenceOfAbort(failure));
  const Failure cause = Classify(failure);
  EXPECT_EQ(cause.kind, CauseKind::kBadInput);
  EXPECT_EQ(cause.message, "rank 1 on n2 reported an error: train.jsonl:7: no JSON");
}

TEST(SignalNameTest, UnknownSignalsAreNumbered) {
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(SignalName(99), "signal 99");
}

}  // namespace
}  // namespace muster
