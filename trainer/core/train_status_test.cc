#include "trainer/core/train_status.h"

#include <gtest/gtest.h>

#include "common/control_pipe/trainer_protocol.h"

namespace muster {
namespace {

TEST(TrainStatus, ALostPeerIsToldFromAnOwnFault) {
  EXPECT_EQ(TrainStatus(Unavailable("rank 1 is gone")).exit_code(), kExitPeerLost);
  EXPECT_EQ(TrainStatus(DeadlineExceeded("all-gather")).kind_name(), "peer_lost");
  EXPECT_EQ(TrainStatus(Internal("bug")).exit_code(), kExitFailure);
  EXPECT_TRUE(TrainStatus(OkStatus()).ok());
}

TEST(TrainStatus, BadInputIsNotRetriedButATroubledDiskIs) {
  const TrainStatus bad = FromInput(FailureKind::kData, InvalidArgument("train.jsonl:3: no JSON"));
  EXPECT_EQ(bad.kind_name(), "data");
  EXPECT_EQ(bad.exit_code(), kExitBadInput);
  EXPECT_EQ(FromInput(FailureKind::kModel, DataLoss("cut short")).exit_code(), kExitBadInput);
  const TrainStatus disk = FromInput(FailureKind::kModel, Internal("read: Input/output error"));
  EXPECT_EQ(disk.kind_name(), "io");
  EXPECT_EQ(disk.exit_code(), kExitFailure);
  EXPECT_TRUE(FromInput(FailureKind::kModel, OkStatus()).ok());
}

TEST(TrainStatus, ExceptionsOfTheAllocatorAreOutOfMemory) {
  EXPECT_EQ(FromException("DefaultCPUAllocator: not enough memory: you tried to allocate").kind(),
            FailureKind::kOutOfMemory);
  EXPECT_EQ(FromException("std::bad_alloc").kind_name(), "out_of_memory");
  EXPECT_EQ(FromException("mat1 and mat2 shapes cannot be multiplied").kind_name(), "internal");
}

TEST(TrainStatus, WhatRanksReadTogetherFailsByALostPeerOrByTheInput) {
  EXPECT_EQ(FromSharedInput(FailureKind::kModel, Unavailable("peer")).exit_code(), kExitPeerLost);
  const TrainStatus bad = FromSharedInput(FailureKind::kModel, DataLoss("cut off"));
  EXPECT_EQ(bad.kind_name(), "model");
  EXPECT_EQ(bad.exit_code(), kExitBadInput);
}

TrainResult<int> Doubled(Result<int> number) {
  MUSTER_ASSIGN_OR_RETURN(const int given, FromInput(FailureKind::kConfig, std::move(number)));
  return 2 * given;
}

TEST(TrainResult, HasAValueOrWhatWasAtFault) {
  EXPECT_EQ(*Doubled(3), 6);
  EXPECT_EQ(Doubled(InvalidArgument("no number")).status().kind(), FailureKind::kConfig);
  EXPECT_EQ(TrainResult<int>(Unavailable("peer")).status().kind(), FailureKind::kPeerLost);
}

}  // namespace
}  // namespace muster
