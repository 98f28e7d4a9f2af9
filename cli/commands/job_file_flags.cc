#include "cli/commands/job_file_flags.h"

#include "cli/base/exit_code.h"

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
  AddContainerFlags(flags, job.container, job.mounts);
}

void AddContainerFlags(Flags& flags, std::string& image, std::vector<std::string>& mounts) {
  flags.Add("--container IMAGE", image,
            "Image of podman, or unpacked root, in which the ranks run [default: the job file's]");
  flags.Add("--mount SOURCE[:TARGET][:ro]", mounts,
            "Mount of the container; repeatable [default: the job file's]");
}

std::string JobFileWords(const JobFileOptions& job) {
  std::string words = ShellWord(job.file);
  const auto add = [&words](const char* flag, const std::string& value) {
    if (!value.empty()) words += std::string(" ") + flag + " " + ShellWord(value);
  };
  for (const std::string& override : job.overrides) add("--set", override);
  add("--accelerate-config", job.accelerate_config);
  add("--name", job.name);
  if (job.priority) add("--priority", std::to_string(*job.priority));
  add("--queue", job.queue);
  add("--class", job.priority_class);
  add("--begin", job.begin);
  if (job.hold) words += " --hold";
  add("--container", job.container);
  for (const std::string& mount : job.mounts) add("--mount", mount);
  return words;
}

}  // namespace muster::verbs
