// What a rank computes on and talks through: the CPU, or a GPU by way of the CUDA plug-in.
//
// Called once by main's thread. Plain functions.
#pragma once

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/rank_env.h"
#include "trainer/train/rank_process.h"

namespace muster {

// As `spec->resources.device` says. A GPU without bf16 makes the job's mixed_precision fp16.
// kFailedPrecondition says what this machine lacks.
Result<RankDevice> MakeRankDevice(const RankEnv& env, JobSpec* spec);

// Which of the `visible` GPUs, counted from 0: the only one for a rank that was shown its own by
// CUDA_VISIBLE_DEVICES, as Muster's guardians do, else the one of its local rank. Ranks can share
// one if each has an NCCL_HOSTID of its own.
Result<int> ChooseGpu(int visible, int local_rank, bool shown_its_own, bool may_share);

// bf16 needs compute capability 8.0: below, fp16 with a dynamic loss scale takes its place.
MixedPrecision PrecisionOn(int compute_major, MixedPrecision wanted);

}  // namespace muster
