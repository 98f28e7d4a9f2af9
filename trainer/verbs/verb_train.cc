#include <malloc.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>
#include <set>
#include <string_view>

#include "common/control_pipe/trainer_protocol.h"
#include "trainer/train/rank_process.h"
#include "trainer/verbs/plan_inputs.h"
#include "trainer/verbs/rank_device.h"
#include "trainer/verbs/verbs.h"

namespace muster {
namespace {

// Activations of one size come and go in every step: keep their memory instead of giving it back
// to the kernel and faulting it in again.
void KeepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 2047 << 20);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

int ThreadsPerRank(const JobSpec& spec) {
  const char* given = std::getenv("OMP_NUM_THREADS");
  const int threads = given == nullptr ? 0 : std::atoi(given);
  return threads > 0 ? threads : std::max(1, spec.resources.cpus_per_rank);
}

Result<std::unique_ptr<ProgressWriter>> MakePage(const RankEnv& env) {
  return env.progress_fd >= 0 ? ProgressWriter::Map(env.progress_fd) : ProgressWriter::Private();
}

// Null without a guardian, because then no process reads them.
Result<std::unique_ptr<FiguresWriter>> MapFigures(const RankEnv& env) {
  if (env.progress_fd < 0) return std::unique_ptr<FiguresWriter>();
  return FiguresWriter::Map(env.progress_fd);
}

// Ends the process at once, before anything is torn down: waiting for a checkpoint that a lost peer
// will never complete would only delay the recovery.
[[noreturn]] void EndWith(const TrainStatus& failure, const RankEnv& env, Step step,
                          Supervisor& supervisor) {
  std::fprintf(stderr, "muster-trainer: rank %d: %s: %s\n", env.rank, failure.kind_name().data(),
               failure.message().c_str());
  supervisor.Error(env.generation, failure, step);
  std::fflush(nullptr);
  ::_exit(failure.exit_code());
}

// With MUSTER_ASSIGN the environment names no rank, only descriptors and whether GPUs are fake.
Result<RankEnv> ReadEnvironment(bool assigned) {
  if (!assigned) return ReadRankEnv(std::getenv);
  const std::set<std::string_view> kept = {kControlFdVariable, kProgressFdVariable,
                                           kFakeGpusVariable};
  MUSTER_ASSIGN_OR_RETURN(RankEnv env, ReadRankEnv([&](const char* name) -> const char* {
                            return kept.contains(name) ? std::getenv(name) : nullptr;
                          }));
  env.generation = 0;
  if (env.control_fd < 0) {
    return InvalidArgument(std::string(kAssignVariable) + " is set and " + kControlFdVariable +
                           " is not, so no guardian can assign a rank");
  }
  return env;
}

void ArmFault(RankFaults& faults, std::string_view kind, std::string_view argument) {
  const Status armed = faults.Arm(kind, argument);
  if (!armed.ok()) std::fprintf(stderr, "muster-trainer: %s\n", armed.message().c_str());
}

}  // namespace

int RunTrain(const TrainOptions& options) {
  KeepFreedMemory();
  const char* const assign = std::getenv(kAssignVariable);
  const bool assigned = assign != nullptr && std::string_view(assign) == "1";
  Result<RankEnv> env = ReadEnvironment(assigned);
  if (!env.ok()) {
    std::fprintf(stderr, "muster-trainer: %s\n", env.status().message().c_str());
    return kExitBadInput;
  }
  RankFaults faults(ProcessFaultEffects(), PauseOf(std::getenv(kPauseVariable)));
  Supervisor supervisor(UniqueFd(std::exchange(env->control_fd, -1)),
                        {.on_fault = [&](std::string_view kind, std::string_view argument) {
                          ArmFault(faults, kind, argument);
                        }});
  Result<JobSpec> spec = ReadTrainJob(options);
  if (!spec.ok()) EndWith(FromInput(FailureKind::kConfig, spec.status()), *env, 0, supervisor);
  if (env->fake_gpus) spec->resources.device = "cpu";
  Result<std::unique_ptr<ProgressWriter>> page = MakePage(*env);
  if (!page.ok()) EndWith({FailureKind::kInternal, page.status()}, *env, 0, supervisor);
  Result<std::unique_ptr<FiguresWriter>> figures = MapFigures(*env);
  if (!figures.ok()) EndWith({FailureKind::kInternal, figures.status()}, *env, 0, supervisor);
  at::set_num_threads(ThreadsPerRank(*spec));
  ProgressReporter progress(*std::move(page), SystemClock(), *std::move(figures));
  RankProcess process(*std::move(spec), {.make_device = MakeRankDevice,
                                         .supervisor = supervisor,
                                         .progress = progress,
                                         .faults = faults,
                                         .clock = SystemClock(),
                                         .out = stdout});
  const TrainStatus status = assigned ? process.RunAssignments() : process.RunOnce(*env);
  if (status.ok()) return kExitOk;
  env->rank = process.rank();
  env->generation = process.generation();
  EndWith(status, *env, process.step(), supervisor);
}

}  // namespace muster
