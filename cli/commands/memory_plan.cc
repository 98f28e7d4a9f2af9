#include "cli/commands/memory_plan.h"

#include <unistd.h>

#include "cli/base/output.h"
#include "cli/base/processes.h"
#include "common/process/run_child.h"

namespace muster::verbs {
namespace {

constexpr std::size_t kMostOutput = 1 << 20;

// A program that fails to start may have the exit code of a job that does not fit.
bool IsPlan(const std::string& output, bool json) {
  return json ? Json::accept(output) : !output.empty();
}

}  // namespace

Result<std::string> MemoryPlan(const std::string& trainer, const JobFileOptions& job,
                               const std::string& device, bool json) {
  if (job.file == "-") return FailedPrecondition("it needs a file, not standard input");
  if (::access(trainer.c_str(), X_OK) != 0)
    return NotFound("muster-trainer is not installed beside muster");
  RunChildOptions child{.max_output = kMostOutput, .errors_apart = true};
  child.spawn.environment = OwnEnvironment();
  child.spawn.argv = {trainer, "plan", job.file};
  const auto add = [&child](const char* flag, const std::string& value) {
    if (!value.empty()) child.spawn.argv.insert(child.spawn.argv.end(), {flag, value});
  };
  add("--device", device);
  add("--accelerate-config", job.accelerate_config);
  for (const std::string& override : job.overrides) add("--set", override);
  if (json) add("-o", "json");
  MUSTER_ASSIGN_OR_RETURN(const ChildOutcome outcome, RunChild(child));
  constexpr int kDoesNotFit = 1;
  const bool planned = outcome.ok() || outcome.exit == ProcessExit{kDoesNotFit, 0};
  if (planned && IsPlan(outcome.output, json)) return outcome.output;
  return FailedPrecondition(outcome.ok() ? "muster-trainer prints no plan" : outcome.Describe());
}

}  // namespace muster::verbs
