#include "common/slurm/slurm_commands.h"

#include <poll.h>

#include <utility>

#include "common/process/run_child.h"
#include "common/slurm/hostlist.h"

namespace muster::slurm {
namespace {

// A list of all jobs of a large cluster.
constexpr std::size_t kMaxOutput = 32 << 20;
constexpr int kExcludePauseMs = 500;

Environment ForCommands(Environment environment) {
  // A user's own defaults for squeue would hide jobs or change their columns.
  std::erase_if(environment, [](const auto& entry) { return entry.first.starts_with("SQUEUE_"); });
  environment["TZ"] = "UTC";
  environment["SLURM_TIME_FORMAT"] = "standard";
  environment["LC_ALL"] = "C";
  environment.emplace("PATH", "/usr/local/bin:/usr/bin:/bin");
  return environment;
}

}  // namespace

SlurmCommands::SlurmCommands(Environment environment, Duration limit)
    : environment_(ForCommands(std::move(environment))), limit_(limit) {}

Result<std::string> SlurmCommands::Run(const std::vector<std::string>& argv,
                                       std::optional<Duration> limit) const {
  RunChildOptions options;
  options.spawn.argv = argv;
  auto program = FindProgram(argv[0], environment_.at("PATH"), "/");
  if (!program.ok())
    return Unimplemented(
        "Slurm's command " + argv[0] +
        " is not in PATH: run this where Slurm's commands are installed, or add their "
        "folder to PATH");
  options.spawn.argv[0] = *program;
  for (const auto& [name, value] : environment_)
    options.spawn.environment.push_back(name + "=" + value);
  options.max_output = kMaxOutput;
  options.limit = limit.value_or(limit_);
  MUSTER_ASSIGN_OR_RETURN(ChildOutcome outcome, RunChild(options));
  std::string command = argv[0];
  if (argv.size() > 1) command += " " + argv[1];
  if (outcome.timed_out) return DeadlineExceeded(command + " gave " + outcome.Describe());
  if (!outcome.ok()) return CommandFailure(command, outcome.output);
  return std::move(outcome.output);
}

Result<std::vector<JobInfo>> SlurmCommands::List(const JobQuery& query) const {
  std::vector<std::string> argv = {"squeue", "--noheader", "--states=all",
                                   "--format=" + JobListFormat()};
  if (query.id) argv.push_back("--jobs=" + query.id->text());
  if (!query.user.empty()) argv.push_back("--users=" + query.user);
  if (!query.name.empty()) argv.push_back("--name=" + query.name);
  MUSTER_ASSIGN_OR_RETURN(const std::string output, Run(argv));
  return ParseJobList(output);
}

Result<JobDetails> SlurmCommands::Show(const JobRef& job) const {
  MUSTER_ASSIGN_OR_RETURN(const std::string output,
                          Run({"scontrol", "show", "job", "-o", job.text()}));
  return ParseJobDetails(output);
}

Result<std::uint64_t> SlurmCommands::Submit(const std::string& script,
                                            const std::vector<std::string>& options) const {
  std::vector<std::string> argv = {"sbatch", "--parsable"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back(script);
  MUSTER_ASSIGN_OR_RETURN(const std::string output, Run(argv));
  return ParseSubmitted(output);
}

Status SlurmCommands::Requeue(const JobRef& job) const {
  return Run({"scontrol", "requeue", job.text()}).status();
}

Status SlurmCommands::Exclude(const JobRef& job, const std::vector<std::string>& nodes) const {
  return Run({"scontrol", "update", "JobId=" + job.text(),
              "ExcNodeList=" + CompressHostlist(nodes)})
      .status();
}

Status SlurmCommands::RequeueWithout(const JobRef& job, const std::vector<std::string>& nodes,
                                     Duration timeout) const {
  MUSTER_RETURN_IF_ERROR(Requeue(job));
  if (nodes.empty()) return OkStatus();
  const Deadline deadline = Deadline::After(timeout);
  for (;;) {
    const Status excluded = Exclude(job, nodes);
    if (excluded.ok() || deadline.Expired()) return excluded;
    (void)::poll(nullptr, 0, kExcludePauseMs);
  }
}

Status SlurmCommands::Cancel(const JobRef& job) const {
  return Run({"scancel", job.text()}).status();
}

Status SlurmCommands::Signal(const JobRef& job, const std::string& signal) const {
  return Run({"scancel", "--signal=" + signal, job.text()}).status();
}

Result<Settings> SlurmCommands::Config() const {
  MUSTER_ASSIGN_OR_RETURN(const std::string output, Run({"scontrol", "show", "config"}));
  return ParseConfig(output);
}

Result<std::map<std::string, Settings>> SlurmCommands::Partitions() const {
  MUSTER_ASSIGN_OR_RETURN(const std::string output, Run({"scontrol", "show", "partition", "-o"}));
  return ParsePartitions(output);
}

}  // namespace muster::slurm
