#include "trainer/core/failure.h"

#include <gtest/gtest.h>

#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

TEST(Failure, ALostPeerIsToldFromAnOwnFault) {
  EXPECT_EQ(CollectiveFailure(Unavailable("rank 1 is gone")).exit_code, kExitPeerLost);
  EXPECT_EQ(CollectiveFailure(DeadlineExceeded("all-gather")).kind, "peer_lost");
  EXPECT_EQ(CollectiveFailure(Internal("bug")).exit_code, kExitFailure);
}

TEST(Failure, BadInputIsNotRetriedButATroubledDiskIs) {
  const Failure bad = InputFailure("data", InvalidArgument("train.jsonl:3: no JSON"));
  EXPECT_EQ(bad.kind, "data");
  EXPECT_EQ(bad.exit_code, kExitBadInput);
  EXPECT_EQ(InputFailure("model", DataLoss("cut short")).exit_code, kExitBadInput);
  const Failure disk = InputFailure("model", Internal("read: Input/output error"));
  EXPECT_EQ(disk.kind, "io");
  EXPECT_EQ(disk.exit_code, kExitFailure);
}

TEST(Failure, ExceptionsOfTheAllocatorAreOutOfMemory) {
  EXPECT_EQ(UncaughtFailure("DefaultCPUAllocator: not enough memory: you tried to allocate").kind,
            "out_of_memory");
  EXPECT_EQ(UncaughtFailure("std::bad_alloc").kind, "out_of_memory");
  EXPECT_EQ(UncaughtFailure("mat1 and mat2 shapes cannot be multiplied").kind, "internal");
}

TEST(Failure, WhatRanksReadTogetherFailsByALostPeerOrByTheInput) {
  EXPECT_EQ(SharedInputFailure("model", Unavailable("peer")).exit_code, kExitPeerLost);
  const Failure bad = SharedInputFailure("model", DataLoss("cut off"));
  EXPECT_EQ(bad.kind, "model");
  EXPECT_EQ(bad.exit_code, kExitBadInput);
}

}  // namespace
}  // namespace muster
