// What every verb gets when it runs, and what several verbs print.
//
// One thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/base/output.h"
#include "cli/client/cluster_client.h"
#include "common/base/result.h"

namespace muster {

// Owned by the program; outlives the verb. Data goes to the terminal's `out`, everything else to
// `err`.
struct CommandContext {
  ClusterClient& client;
  Terminal& terminal;
  OutputFormat output = OutputFormat::kTable;
  // The words of the command line for another program: torchrun's, sbatch's, srun's.
  std::vector<std::string> passed_on = {};
  std::string slurm_job = {};      // --slurm-job, where it was given
  const bool* by_login = nullptr;  // true once a call went to the coordinator of a login

  const std::string& dir() const { return client.dir(); }
  Interrupt& interrupt() { return client.interrupt(); }
  // False: standard output belongs to a program.
  bool for_people() const {
    return output == OutputFormat::kTable || output == OutputFormat::kWide;
  }
};

// An exit code (exit_code.h), or the error that the program prints and maps to one.
using CommandResult = Result<int>;

// The flags by which the next command reaches the same cluster: "--dir DIR", "--slurm-job JOB",
// "--coordinator IP:PORT --tls DIR" for a coordinator on another machine, none with a login.
std::string SameCluster(const CommandContext& context);

// The new state of a job or a node, for verbs that change one: "job 7f3a9c1e2b is stopping", with
// `more` behind it, or what --output asks for, with `fields` besides.
void PrintState(CommandContext& context, const std::string& job, v1::JobState state,
                const std::string& more = "", const Json& fields = Json::object());
void PrintState(CommandContext& context, const std::string& node, v1::NodeState state,
                const std::string& more = "", const Json& fields = Json::object());

// The answer to a request that changes a job.
struct ChangedJob {
  std::string id;
  v1::JobState state;
  std::string more = {};  // behind the state
  bool as_asked = true;   // else the exit code is kExitError
};
enum class OneJob { kObject, kList };
// Has `change` done for each job and prints the new states, a list where --output asks for data;
// for one job what `one` says. A job that fails keeps no other from its turn: its error goes to
// `err`, and the first one decides the exit code. The error of a single job is returned.
CommandResult ChangeJobs(CommandContext& context, const std::vector<std::string>& jobs,
                         const std::function<Result<ChangedJob>(const std::string&)>& change,
                         OneJob one = OneJob::kObject);

}  // namespace muster
