#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>

#include "cli/commands/slurm.h"
#include "cli/exit_code.h"
#include "cli/processes.h"
#include "cli/slurm/node_probe.h"
#include "common/slurm/doctor.h"
#include "common/slurm/doctor_nodes.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// The step may have to wait for nodes.
constexpr int kQueueSeconds = 300;
constexpr Duration kStepLimit = std::chrono::seconds(kQueueSeconds + 180);

std::string WordOf(slurm::Verdict verdict) {
  switch (verdict) {
    case slurm::Verdict::kOk: return "ok";
    case slurm::Verdict::kWarn: return "warn";
    case slurm::Verdict::kFail: return "fail";
  }
  return "fail";
}

void PrintForPeople(std::ostream& out, const std::vector<slurm::Finding>& findings) {
  for (const slurm::Finding& finding : findings) {
    std::string verdict = WordOf(finding.verdict);
    verdict.resize(6, ' ');
    out << verdict << finding.check << ": " << Printable(finding.what) << "\n";
    if (!finding.change.empty()) out << "      " << Printable(finding.change) << "\n";
  }
}

// The nodes of the allocation that this runs in; 0: it runs in none.
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

std::vector<std::string> StepWords(const SlurmDoctorOptions& options, int nodes, bool here,
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

// By one step over the nodes, with a directory that goes afterwards.
Result<std::vector<slurm::Finding>> TryNodes(const slurm::SlurmCommands& commands,
                                             const SlurmDoctorOptions& options, int nodes,
                                             bool here) {
  MUSTER_ASSIGN_OR_RETURN(const std::string binaries, OwnBinaryDirectory());
  std::string dir = fs::absolute(options.shared).lexically_normal() / "muster-doctor-XXXXXX";
  if (::mkdtemp(dir.data()) == nullptr)
    return ErrnoStatus(errno, "make " + dir + " (--shared names a directory that all nodes share)");
  const auto output =
      commands.Run(StepWords(options, nodes, here, binaries + "/muster", dir), kStepLimit);
  std::error_code ignored;
  fs::remove_all(dir, ignored);
  if (output.ok()) return slurm::JudgeNodes(nodes, slurm::ParseProbes(*output));
  if (output.status().code() == StatusCode::kUnimplemented) return output.status();
  return std::vector<slurm::Finding>{
      {"nodes", slurm::Verdict::kFail, output.status().message(),
       "give doctor the options that jobs have (--partition, --gpus-per-node, ...), and see that "
       "the nodes find " +
           binaries + "/muster"}};
}

}  // namespace

CommandResult RunSlurmDoctor(CommandContext& context, const slurm::SlurmCommands& commands,
                             const SlurmDoctorOptions& options) {
  slurm::DoctorQuestion question{.config = {},
                                 .partitions = {},
                                 .partition = options.partition,
                                 .checkpoint_seconds = options.checkpoint_seconds,
                                 .signal_lead_seconds = options.signal_lead_seconds};
  MUSTER_ASSIGN_OR_RETURN(question.config, commands.Config());
  MUSTER_ASSIGN_OR_RETURN(question.partitions, commands.Partitions());
  std::vector<slurm::Finding> findings = slurm::JudgeSettings(question);
  const int here = NodesHere(slurm::CurrentEnvironment());
  const int nodes = options.nodes > 0 ? options.nodes : here;
  if (nodes == 0 && !options.srun.empty())
    return InvalidArgument("'" + options.srun.front() +
                           "' is no option of muster slurm doctor; options of Slurm's say which "
                           "nodes to try, and need --nodes N");
  if (nodes > 0) {
    context.terminal.err << "trying " << nodes << " nodes by srun\n";
    MUSTER_ASSIGN_OR_RETURN(const auto of_nodes, TryNodes(commands, options, nodes, here > 0));
    findings.insert(findings.end(), of_nodes.begin(), of_nodes.end());
  }
  Json json = Json::array();
  for (const slurm::Finding& finding : findings)
    json.push_back({{"check", finding.check},
                    {"verdict", WordOf(finding.verdict)},
                    {"what", finding.what},
                    {"change", finding.change.empty() ? Json(nullptr) : Json(finding.change)}});
  if (!PrintStructured(context.terminal.out, context.output, json, "check"))
    PrintForPeople(context.terminal.out, findings);
  const bool failed = std::any_of(
      findings.begin(), findings.end(),
      [](const slurm::Finding& finding) { return finding.verdict == slurm::Verdict::kFail; });
  return failed ? kExitError : kExitSuccess;
}

CommandResult RunSlurmProbe(CommandContext& context, const SlurmProbeOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const slurm::Allocation allocation,
                          slurm::ReadAllocation(slurm::CurrentEnvironment()));
  const slurm::NodeProbe probe =
      ProbeNode(allocation, {.dir = options.dir, .interface = options.interface});
  context.terminal.out << slurm::ProbeLine(probe) << "\n";
  return kExitSuccess;
}

}  // namespace muster
