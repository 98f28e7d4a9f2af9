#include "cli/commands/job_file_flags.h"

namespace muster::verbs {

void AddJobFileFlags(Flags& flags, JobFileOptions& job) {
  flags.Add("FILE", job.file, "Job file; - reads standard input").Required();
  flags.Add("--set KEY=VALUE", job.overrides,
            "Override a key of the job file, such as train.optimizer.lr=1e-4");
  flags.Add("--accelerate-config FILE", job.accelerate_config,
            "Configuration of Accelerate or DeepSpeed, for keys that the job file leaves out");
  flags.Add("--name NAME", job.name, "Job name [default: the job file's]");
  flags.Add("--priority N", job.priority,
            "Priority, 0 to 100; higher runs first [default: the job file's]");
  flags.Add("--queue NAME", job.queue, "Queue [default: the job file's]");
  flags.Add("--class NAME", job.priority_class, "Priority class [default: the job file's]");
  flags.Add("--begin TIME", job.begin,
            "Do not place the job before: 2026-11-28T06:00 (local time), 2026-11-28T05:00:00Z, "
            "2026-11-28, or now+2h [default: the job file's]");
  flags.Add("--hold", job.hold, "Do not place the job before muster release");
}

}  // namespace muster::verbs
