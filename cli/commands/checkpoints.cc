// checkpoints: the committed checkpoints of a job.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"

namespace muster::verbs {
namespace {

std::string VerifiedText(const v1::CheckpointInfo& checkpoint) {
  if (!checkpoint.refused().empty()) return "damaged";
  return checkpoint.verified_unix_ms() > 0 ? LocalTime(checkpoint.verified_unix_ms()) : "not yet";
}

}  // namespace

struct Checkpoints {
  static constexpr char kName[] = "checkpoints";
  static constexpr char kSummary[] = "List a job's committed checkpoints";

  std::string job;
  bool verify = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp).Required();
    flags.Add("--verify", verify,
              "Read and verify every checkpoint first; exit code 1 if one is damaged");
  }

  CommandResult Run(CommandContext& context) const {
    int exit_code = kExitSuccess;
    std::string outcome;
    if (verify) {
      v1::VerifyCheckpointsRequest request;
      request.set_job(job);
      MUSTER_ASSIGN_OR_RETURN(const v1::VerifyCheckpointsResponse found,
                              context.client.VerifyCheckpoints(request));
      if (found.damaged_size() > 0) exit_code = kExitError;
      const int all = found.whole() + found.damaged_size();
      outcome = std::to_string(all) + (all == 1 ? " checkpoint" : " checkpoints") + " verified, " +
                std::to_string(found.damaged_size()) + " damaged\n";
    }
    MUSTER_ASSIGN_OR_RETURN(const v1::Job found, context.client.GetJob(job));
    Terminal& terminal = context.terminal;
    Json list = Json::array();
    for (const auto& checkpoint : found.checkpoints()) list.push_back(CheckpointJson(checkpoint));
    if (PrintStructured(terminal.out, context.output, list, "directory")) return exit_code;
    if (found.checkpoints().empty())
      terminal.err << "job " << found.id() << " has no checkpoints\n";
    Table table(
        {"STEP", "GEN", "RANKS", "SIZE", "EVAL LOSS", "COMMITTED", "VERIFIED", "DIRECTORY"});
    for (const auto& checkpoint : found.checkpoints())
      table.Add({std::to_string(checkpoint.step()), std::to_string(checkpoint.generation()),
                 std::to_string(checkpoint.world_size()), HumanBytes(CheckpointBytes(checkpoint)),
                 checkpoint.has_eval_loss() ? LossText(checkpoint.eval_loss(), 4) : "-",
                 LocalTime(checkpoint.committed_unix_ms()), VerifiedText(checkpoint),
                 found.output_dir() + "/checkpoints/" + checkpoint.directory()});
    table.Print(terminal.out, terminal.color);
    for (const auto& checkpoint : found.checkpoints())
      if (!checkpoint.refused().empty())
        terminal.err << checkpoint.directory() << ": " << Printable(checkpoint.refused()) << "\n";
    terminal.err << outcome;
    return exit_code;
  }
};

template void AddVerb<Checkpoints>(CommandLine& line);

}  // namespace muster::verbs
