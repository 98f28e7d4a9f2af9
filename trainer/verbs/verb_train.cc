#include <malloc.h>
#include <unistd.h>

#include <ATen/Parallel.h>

#include <cstdio>
#include <cstdlib>

#include "common/base/files.h"
#include "common/control_pipe/trainer_protocol.h"
#include "common/job_spec/parse.h"
#include "trainer/loop/trainer.h"
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

Result<JobSpec> ReadJob(const std::string& file) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, ParseJobSpec(text, file));
  if (!spec.train) {
    return InvalidArgument(file + ": has no train block; a command job is not run by the trainer");
  }
  return spec;
}

Result<std::unique_ptr<ProgressWriter>> MakePage(const RankEnv& env) {
  return env.progress_fd >= 0 ? ProgressWriter::Map(env.progress_fd) : ProgressWriter::Private();
}

// Ends the process at once, before anything is torn down: waiting for a checkpoint that a lost peer
// will never complete would only delay the recovery.
[[noreturn]] void EndWith(const Failure& failure, int rank, Step step, Supervisor& supervisor) {
  std::fprintf(stderr, "muster-trainer: rank %d: %s: %s\n", rank, failure.kind.c_str(),
               failure.status.message().c_str());
  supervisor.Error(failure.kind, failure.status.message(), step);
  std::fflush(nullptr);
  ::_exit(failure.exit_code);
}

std::optional<Failure> RunGuarded(Trainer& trainer) {
  try {
    return trainer.Run();
  } catch (const std::exception& error) {
    return UncaughtFailure(error.what());
  }
}

}  // namespace

int RunTrain(const std::string& file) {
  KeepFreedMemory();
  Result<RankEnv> env = ReadRankEnv(std::getenv);
  if (!env.ok()) {
    std::fprintf(stderr, "muster-trainer: %s\n", env.status().message().c_str());
    return kExitBadInput;
  }
  Supervisor supervisor{UniqueFd(std::exchange(env->control_fd, -1))};
  Result<JobSpec> spec = ReadJob(file);
  if (!spec.ok()) EndWith(InputFailure("config", spec.status()), env->rank, 0, supervisor);
  Result<std::unique_ptr<ProgressWriter>> page = MakePage(*env);
  if (!page.ok()) {
    EndWith({"internal", kExitFailure, page.status()}, env->rank, 0, supervisor);
  }
  at::set_num_threads(ThreadsPerRank(*spec));
  const Result<RankDevice> device = MakeRankDevice(*env, &*spec);
  if (!device.ok()) EndWith(InputFailure("config", device.status()), env->rank, 0, supervisor);
  for (const std::string& note : device->notes) supervisor.Note("warning", note);
  ProgressReporter progress(*std::move(page), SystemClock());
  Trainer trainer(*std::move(spec), *env,
                  {.communicator = *device->communicator,
                   .ops = *device->ops,
                   .supervisor = supervisor,
                   .progress = progress,
                   .clock = SystemClock(),
                   .out = stdout});
  if (const std::optional<Failure> failure = RunGuarded(trainer)) {
    EndWith(*failure, env->rank, trainer.step(), supervisor);
  }
  return kExitOk;
}

}  // namespace muster
