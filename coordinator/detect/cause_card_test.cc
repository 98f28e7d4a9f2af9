#include "coordinator/detect/cause_card.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "coordinator/detect/cause_advice.h"

namespace muster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

JobSpec TrainJob() {
  JobSpec spec;
  spec.resources.nodes = 4;
  spec.train.emplace();
  return spec;
}

JobSpec CommandJob() {
  JobSpec spec;
  spec.command = {"python", "train.py"};
  return spec;
}

CauseEvidence Exit(int code, int signal = 0) {
  CauseEvidence evidence;
  evidence.kind = signal != 0 ? CauseKind::kRankKilled : CauseKind::kRankExited;
  evidence.node = NodeName{"n2"};
  evidence.exit = ProcessExit{code, signal};
  evidence.world_size = 4;
  return evidence;
}

RankProgress Page(TrainPhase phase) {
  RankProgress page;
  page.step = 41;
  page.phase = phase;
  page.micro_batch = 3;
  page.collectives = {{.group = "world", .enqueued = 812, .completed = 811}};
  return page;
}

TEST(CauseCard, NamesHowWhereAndInWhichCollective) {
  CauseEvidence evidence = Exit(0, SIGSEGV);
  evidence.last = Page(TrainPhase::kBackward);
  evidence.facts = {"2 of 4 GiB free on its node", "2 of 4 GiB free on its node", ""};
  const CauseCard card = BuildCauseCard(evidence, TrainJob());
  EXPECT_EQ(card.what, "SIGSEGV");
  EXPECT_EQ(card.step, 41);
  EXPECT_EQ(card.phase, "backward");
  EXPECT_EQ(card.micro_batch, 3);
  EXPECT_EQ(card.last_collective, "world: 812 enqueued, 811 completed");
  EXPECT_THAT(card.facts, ElementsAre("2 of 4 GiB free on its node"));
  EXPECT_THAT(card.advice, HasSubstr("exclude"));
}

TEST(CauseCard, TheTrainersMessageComesBeforeTheLog) {
  CauseEvidence evidence = Exit(78);
  evidence.kind = CauseKind::kBadInput;
  evidence.error =
      TrainerError{.kind = "data", .message = "rows.jsonl:12: no field 'text'", .step = 0};
  evidence.log_tail = {"SomeError: else"};
  const CauseCard card = BuildCauseCard(evidence, TrainJob());
  EXPECT_EQ(card.what, "exit code 78 (rows.jsonl:12: no field 'text')");
  EXPECT_THAT(card.advice, HasSubstr("No other attempt would do better"));
}

TEST(CauseCard, AHangHasItsStandstillAndItsWaitForGraph) {
  CauseEvidence evidence;
  evidence.kind = CauseKind::kHung;
  evidence.node = NodeName{"n2"};
  evidence.hang = HangVerdict{{1}, "no progress for 3.1 s", "rank 1 ...", {"limit 3.0 s"}};
  evidence.last = Page(TrainPhase::kData);
  const CauseCard card = BuildCauseCard(evidence, TrainJob());
  EXPECT_EQ(card.what, "no progress for 3.1 s");
  EXPECT_THAT(card.facts, ElementsAre("limit 3.0 s"));
  EXPECT_THAT(card.advice, AllOf(HasSubstr("read rows"), HasSubstr("n2")));
}

TEST(CauseCard, WhatOthersSayIsCut) {
  CauseEvidence evidence = Exit(1);
  evidence.error = TrainerError{.kind = "internal", .message = std::string(100000, 'x'), .step = 7};
  evidence.facts.assign(1000, "");
  for (std::size_t i = 0; i < evidence.facts.size(); ++i) {
    evidence.facts[i] = std::to_string(i) + std::string(5000, 'y');
  }
  const CauseCard card = BuildCauseCard(evidence, TrainJob());
  EXPECT_LT(card.what.size(), 500u);
  EXPECT_EQ(card.step, 7);
  ASSERT_EQ(card.facts.size(), 20u);
  EXPECT_LT(card.facts[0].size(), 500u);
}

TEST(ExceptionInLog, IsNamedWithItsMessage) {
  const std::pair<std::vector<std::string>, std::string> cases[] = {
      {{"Traceback (most recent call last):", "  File \"t.py\", line 3", "ValueError: no rows"},
       "ValueError: no rows"},
      {{"torch.OutOfMemoryError: CUDA out of memory", "[rank0] shutting down"},
       "torch.OutOfMemoryError: CUDA out of memory"},
      {{"KeyboardInterrupt"}, "KeyboardInterrupt"},
      {{"terminate called after throwing an instance of 'std::bad_alloc'",
        "  what():  std::bad_alloc"},
       "std::bad_alloc:  std::bad_alloc"},
      {{"terminate called after throwing an instance of 'int'"}, "int"},
      {{"step 3 loss 2.5", "Error while closing, ignored"}, ""},
      {{"Error"}, ""},
      {{""}, ""},
      {{}, ""}};
  for (const auto& [log, expected] : cases) EXPECT_EQ(ExceptionInLog(log), expected);
}

TEST(CauseCard, AnExceptionIsNamedButNotInTheLogOfAKilledRank) {
  CauseEvidence evidence = Exit(1);
  evidence.log_tail = {"ValueError: no rows"};
  EXPECT_EQ(BuildCauseCard(evidence, CommandJob()).what, "exit code 1 (ValueError: no rows)");
  evidence.exit = ProcessExit{0, SIGKILL};
  EXPECT_EQ(BuildCauseCard(evidence, CommandJob()).what, "SIGKILL");
}

// --- advice ---

struct AdviceCase {
  std::string name;
  CauseEvidence evidence;
  std::string says;
};
class Advice : public ::testing::TestWithParam<AdviceCase> {};

TEST_P(Advice, NamesWhatToDo) {
  const std::string advice = AdviceFor(GetParam().evidence, TrainJob());
  EXPECT_THAT(advice, HasSubstr(GetParam().says));
  EXPECT_TRUE(advice.ends_with(".")) << advice;
}

CauseEvidence Kind(CauseKind kind, std::string message = "") {
  CauseEvidence evidence;
  evidence.kind = kind;
  evidence.node = NodeName{"n2"};
  evidence.message = std::move(message);
  return evidence;
}

CauseEvidence WithLog(CauseEvidence evidence, std::string line) {
  evidence.log_tail = {std::move(line)};
  return evidence;
}

CauseEvidence Standing(TrainPhase phase, const char* state) {
  CauseEvidence evidence = Kind(CauseKind::kHung);
  evidence.last = Page(phase);
  evidence.last->process_state = state;
  return evidence;
}

INSTANTIATE_TEST_SUITE_P(
    Causes, Advice,
    ::testing::Values(
        AdviceCase{"Killed", Exit(0, SIGKILL), "kernel log of n2"},
        AdviceCase{"Bus", Exit(0, SIGBUS), "/dev/shm"},
        AdviceCase{"IllegalInstruction", Exit(0, SIGILL), "instructions"},
        AdviceCase{"Segfault", Exit(0, SIGSEGV), "resources.exclude"},
        AdviceCase{"Terminated", Exit(0, SIGTERM), "ended this process with a signal"},
        AdviceCase{"KilledAfterATalkativeLog", WithLog(Exit(0, SIGKILL), "No space left on device"),
                   "Nothing in the job sends SIGKILL"},
        AdviceCase{"AbortedWithWords", WithLog(Exit(0, SIGABRT), "No space left on device"),
                   "A disk is full"},
        AdviceCase{"DiskFull", WithLog(Exit(1), "write: No space left on device"),
                   "A disk is full"},
        AdviceCase{"ReadOnly", WithLog(Exit(1), "open: Read-only file system"), "read-only"},
        AdviceCase{"DiskFailed", WithLog(Exit(1), "read: Input/output error"), "failed"},
        AdviceCase{"Port", WithLog(Exit(1), "bind: Address already in use"), "port"},
        AdviceCase{"OpenFiles", WithLog(Exit(1), "Too many open files"), "ulimit -n"},
        AdviceCase{"BadInput", Kind(CauseKind::kBadInput), "submit it again"},
        AdviceCase{"BadInputUnreadable", Kind(CauseKind::kBadInput, "rows: Permission denied"),
                   "owner and mode"},
        AdviceCase{"NonFinite", Kind(CauseKind::kNonFinite), "train.optimizer.lr"},
        AdviceCase{"PeerLost", Kind(CauseKind::kPeerLost), "network"},
        AdviceCase{"NodeLost", Kind(CauseKind::kNodeLost), "network of n2"},
        AdviceCase{"NotFormed", Kind(CauseKind::kFormTimeout), "firewall"},
        AdviceCase{"NoAddress", Kind(CauseKind::kBadAddress), "--address"},
        AdviceCase{"SlowToPrepare", Kind(CauseKind::kPrepareTimeout), "worker.log"},
        AdviceCase{"TimeLimit", Kind(CauseKind::kTimeLimit), "resources.time_limit"},
        AdviceCase{"HungInData", Standing(TrainPhase::kData, "S"), "train.data.train"},
        AdviceCase{"HungWriting", Standing(TrainPhase::kCheckpoint, "S"), "output directory"},
        AdviceCase{"HungInTheKernel", Standing(TrainPhase::kForward, "D"), "disk or a device"},
        AdviceCase{"HungStopped", Standing(TrainPhase::kData, "T"), "signal"},
        AdviceCase{"HungElsewhere", Standing(TrainPhase::kForward, "S"), "muster drain n2"},
        AdviceCase{"GpuOffTheBus", Kind(CauseKind::kDeviceFault, "Xid 79 on GPU 3"), "boot"},
        AdviceCase{"GpuLink", Kind(CauseKind::kDeviceFault, "NVRM: Xid (PCI:0000:3b): 74"),
                   "NVLink"},
        AdviceCase{"GpuMemory", Kind(CauseKind::kDeviceFault, "Xid 95"), "reset the GPU"},
        AdviceCase{"GpuUnknown", Kind(CauseKind::kDeviceFault, "Xid 999"), "kernel log of n2"}),
    [](const auto& each) { return each.param.name; });

TEST(Advice, CommandsGetTheShellsCodesExplained) {
  EXPECT_THAT(AdviceFor(Exit(127), CommandJob()), HasSubstr("not found"));
  EXPECT_THAT(AdviceFor(Exit(126), CommandJob()), HasSubstr("mode"));
  EXPECT_THAT(AdviceFor(Exit(127), TrainJob()), IsEmpty());
  EXPECT_THAT(AdviceFor(Exit(3), CommandJob()), IsEmpty()) << "a code that means nothing";
}

// --- memory ---

TEST(MemoryAdvice, NamesWhatIsNotShardedQuantisedOrOffloaded) {
  JobSpec spec = TrainJob();
  spec.resources.device = "cuda";
  spec.train->fsdp.strategy = ShardingStrategy::kNoShard;
  spec.train->fsdp.mixed_precision = MixedPrecision::kFp32;
  spec.train->batch.per_rank = 8;
  const std::string advice = MemoryAdvice(spec, 4, true);
  for (const char* key :
       {"train.fsdp.strategy: full_shard", "4 ranks", "cpu_offload: true", "mixed_precision: bf16",
        "moments: bf16", "activation_checkpointing: full", "8 rows"}) {
    EXPECT_THAT(advice, HasSubstr(key));
  }
  EXPECT_THAT(advice, Not(HasSubstr("snapshot"))) << "snapshots lie in host memory";
}

TEST(MemoryAdvice, LeavesOutWhatIsInUseOrWouldNotHelp) {
  JobSpec spec = TrainJob();
  const std::string host = MemoryAdvice(spec, 4, false);
  EXPECT_THAT(host, HasSubstr("train.snapshot.every: 0"));
  EXPECT_THAT(host, Not(HasSubstr("cpu_offload"))) << "it is host memory already";
  EXPECT_THAT(host, Not(HasSubstr("strategy")));
  spec.train->snapshot.every = 0;
  spec.train->optimizer.moments = StateType::kBf16;
  spec.train->fsdp.activation_checkpointing = ActivationCheckpointing::kFull;
  EXPECT_THAT(MemoryAdvice(spec, 4, false), HasSubstr("already"));
  spec.train->fsdp.strategy = ShardingStrategy::kNoShard;
  EXPECT_THAT(MemoryAdvice(spec, 1, false), Not(HasSubstr("full_shard"))) << "one rank has it all";
}

TEST(MemoryAdvice, EveryStrategyButFullShardIsNamed) {
  for (const ShardingStrategy strategy :
       {ShardingStrategy::kNoShard, ShardingStrategy::kHybridShard,
        ShardingStrategy::kHybridShardZero2, ShardingStrategy::kShardGradOp}) {
    JobSpec spec = TrainJob();
    spec.train->fsdp.strategy = strategy;
    EXPECT_THAT(MemoryAdvice(spec, 4, true), HasSubstr("train.fsdp.strategy: full_shard"));
  }
}

TEST(MemoryAdvice, TheKernelsKillerIsAboutHostMemoryEvenOnGpus) {
  JobSpec spec = TrainJob();
  spec.resources.device = "cuda";
  CauseEvidence evidence = Exit(0, SIGKILL);
  evidence.out_of_memory = true;
  EXPECT_THAT(AdviceFor(evidence, spec), HasSubstr("memory of n2"));
  EXPECT_EQ(BuildCauseCard(evidence, spec).what, "SIGKILL by the kernel's out-of-memory killer");
  evidence = Kind(CauseKind::kOutOfMemory);
  EXPECT_THAT(AdviceFor(evidence, spec), HasSubstr("GPU's memory"));
  EXPECT_THAT(AdviceFor(evidence, CommandJob()), HasSubstr("ranks_per_node"));
}

}  // namespace
}  // namespace muster
