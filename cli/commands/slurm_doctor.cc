// slurm doctor: checks Slurm's settings, and nodes by running one step on them. slurm probe is what
// that step runs.

#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "cli/base/exit_code.h"
#include "cli/base/findings.h"
#include "cli/base/processes.h"
#include "cli/commands/verb.h"
#include "cli/slurm/node_probe.h"
#include "cli/slurm/slurm_job.h"
#include "common/job_spec/job_spec.h"
#include "common/slurm/doctor.h"
#include "common/slurm/doctor_nodes.h"

namespace muster::verbs {

struct DoctorOptions {
  std::string partition;  // empty: the default one
  std::optional<double> checkpoint_seconds;
  int signal_lead_seconds = 180;
  int nodes = 0;                  // to try by one srun; 0: those of the allocation we run in
  std::string shared = ".";       // directory that the nodes share
  std::string interface;          // by which the nodes reach each other
  std::vector<std::string> srun;  // options for srun
};

namespace {

namespace fs = std::filesystem;

// The step may wait for nodes.
constexpr int kQueueSeconds = 300;
constexpr Duration kStepLimit = std::chrono::seconds(kQueueSeconds + 180);

// The number of nodes of the allocation that this process runs in; 0 outside of one.
int NodesHere(const slurm::Environment& environment) {
  const auto found = environment.find("SLURM_JOB_NUM_NODES");
  int nodes = 0;
  if (!slurm::InAllocation(environment) || found == environment.end()) return 0;
  std::from_chars(found->second.data(), found->second.data() + found->second.size(), nodes);
  return nodes;
}

bool IsGiven(const std::vector<std::string>& words, const std::string& option) {
  return std::any_of(words.begin(), words.end(), [&option](const std::string& word) {
    return word == option || word.starts_with(option + "=");
  });
}

std::vector<std::string> StepWords(const DoctorOptions& options, int nodes, bool here,
                                   const std::string& muster, const std::string& dir) {
  const std::string count = std::to_string(nodes);
  std::vector<std::string> words = {"srun",
                                    "--nodes=" + count,
                                    "--ntasks=" + count,
                                    "--ntasks-per-node=1",
                                    "--kill-on-bad-exit=0",
                                    "--cpu-bind=none",
                                    "--job-name=muster-doctor"};
  if (here) words.push_back("--overlap");
  if (!here && !IsGiven(options.srun, "--immediate"))
    words.push_back("--immediate=" + std::to_string(kQueueSeconds));
  if (!here && !IsGiven(options.srun, "--time") && !IsGiven(options.srun, "-t"))
    words.push_back("--time=3");
  if (!options.partition.empty()) words.push_back("--partition=" + options.partition);
  words.insert(words.end(), options.srun.begin(), options.srun.end());
  words.insert(words.end(), {muster, "slurm", "probe", "--shared", dir});
  if (!options.interface.empty()) words.insert(words.end(), {"--interface", options.interface});
  return words;
}

// Runs one step over the nodes, with a temporary directory for it.
Result<std::vector<Finding>> TryNodes(const slurm::SlurmCommands& commands,
                                      const DoctorOptions& options, int nodes, bool here) {
  MUSTER_ASSIGN_OR_RETURN(const std::string binaries, OwnBinaryDirectory());
  std::string dir = fs::absolute(options.shared).lexically_normal() / "muster-doctor-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr)
    return ErrnoStatus(errno,
                       "create " + dir + " (--shared selects a directory that all nodes share)");
  const auto output =
      commands.Run(StepWords(options, nodes, here, binaries + "/muster", dir), kStepLimit);
  std::error_code ignored;
  fs::remove_all(dir, ignored);
  if (output.ok()) return slurm::JudgeNodes(nodes, slurm::ParseProbes(*output));
  if (output.status().code() == StatusCode::kUnimplemented) return output.status();
  return std::vector<Finding>{{"nodes", Verdict::kFail, output.status().message(),
                               "pass the options that jobs use (--partition, "
                               "--gpus-per-node, ...), and check that the nodes "
                               "can run " +
                                   binaries + "/muster"}};
}

// kExitError when a check fails.
CommandResult RunDoctor(CommandContext& context, const slurm::SlurmCommands& commands,
                        const DoctorOptions& options) {
  slurm::DoctorQuestion question{.config = {},
                                 .partitions = {},
                                 .partition = options.partition,
                                 .checkpoint_seconds = options.checkpoint_seconds,
                                 .signal_lead_seconds = options.signal_lead_seconds};
  MUSTER_ASSIGN_OR_RETURN(question.config, commands.Config());
  MUSTER_ASSIGN_OR_RETURN(question.partitions, commands.Partitions());
  std::vector<Finding> findings = slurm::JudgeSettings(question);
  const int here = NodesHere(slurm::CurrentEnvironment());
  const int nodes = options.nodes > 0 ? options.nodes : here;
  if (nodes == 0 && !options.srun.empty())
    return InvalidArgument("'" + options.srun.front() +
                           "' is not an option of muster slurm doctor; options for srun select the "
                           "nodes to try and require --nodes N");
  if (nodes > 0) {
    context.terminal.err << "trying " << nodes << " nodes with srun\n";
    MUSTER_ASSIGN_OR_RETURN(const auto of_nodes, TryNodes(commands, options, nodes, here > 0));
    findings.insert(findings.end(), of_nodes.begin(), of_nodes.end());
  }
  return PrintFindings(context.terminal.out, context.output, findings);
}

}  // namespace

struct SlurmDoctor {
  static constexpr char kName[] = "doctor";
  static constexpr char kSummary[] = "Check Slurm's settings and nodes; suggest changes";

  DoctorOptions options;

  void AddFlags(Flags& flags) {
    flags.PassOnUnknown();
    flags.AddOutput("-o");
    flags
        .Add("--nodes,-N N", options.nodes,
             "Number of nodes to try with srun [default: those of the current allocation]")
        .Range(1, kMaxClusterNodes);
    flags.Add("--shared DIR", options.shared, "Directory that the nodes share");
    flags.Add("--interface NAME", options.interface,
              "Interface or network between the nodes, as for muster-worker --auto");
    flags.Add("--partition NAME", options.partition,
              "Partition of the job [default: Slurm's default partition]");
    flags
        .Add("--checkpoint-seconds SECONDS", options.checkpoint_seconds,
             "Duration of a checkpoint [default: unknown]")
        .Range(0, 86400);
    flags.Add("--signal-lead SECONDS", options.signal_lead_seconds, "As for muster slurm submit")
        .Range(60, 65535);
    flags.SetFooter(
        "Other options are passed to srun, to try the nodes that jobs get: muster slurm doctor "
        "--nodes 2 --gpus-per-node=8");
  }

  CommandResult Run(CommandContext& context) {
    options.srun = context.passed_on;
    return RunDoctor(context, UserSlurmCommands(), options);
  }
};

struct SlurmProbe {
  static constexpr char kName[] = "probe";
  static constexpr char kSummary[] = "Probe one node for doctor";

  std::string dir;
  std::string interface;

  void AddFlags(Flags& flags) {
    flags.HideVerb();
    flags.Add("--shared DIR", dir, "Directory that the nodes share").Required();
    flags.Add("--interface NAME", interface, "Interface or network between the nodes");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const slurm::Allocation allocation,
                            slurm::ReadAllocation(slurm::CurrentEnvironment()));
    const slurm::NodeProbe probe = ProbeNode(allocation, {.dir = dir, .interface = interface});
    context.terminal.out << slurm::ProbeLine(probe) << "\n";
    return kExitSuccess;
  }
};

template void AddVerb<SlurmDoctor>(CommandLine& line);
template void AddVerb<SlurmProbe>(CommandLine& line);

}  // namespace muster::verbs
