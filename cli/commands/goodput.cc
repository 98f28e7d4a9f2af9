// goodput: what the time of jobs and of all slots was spent on.

#include "cli/jobs/goodput.h"
#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"

namespace muster::verbs {
namespace {

constexpr const char* kStates[] = {"step", "recompute", "checkpoint", "recovery",
                                   "hang", "queue",     "idle"};

std::vector<std::string> Headers(bool wide) {
  std::vector<std::string> headers = {"ID", "NAME", "STATE", "GOODPUT", "RANK TIME"};
  if (!wide) {
    headers.insert(headers.end(), {"QUEUE", "LOST TO"});
    return headers;
  }
  for (const char* state : kStates) {
    headers.emplace_back(state);
    for (char& c : headers.back()) c = static_cast<char>(c - 'a' + 'A');
  }
  return headers;
}

std::vector<std::string> Row(std::vector<std::string> row, const v1::Goodput& goodput, bool wide) {
  row.push_back(GoodputText(goodput));
  row.push_back(RankTimeText(TotalSeconds(goodput)));
  if (wide) {
    for (const char* state : kStates) row.push_back(RankTimeText(SecondsOf(goodput, state)));
  } else {
    row.push_back(RankTimeText(SecondsOf(goodput, "queue")));
    row.push_back(LostText(goodput));
  }
  return row;
}

}  // namespace

struct Goodput {
  static constexpr char kName[] = "goodput";
  static constexpr char kSummary[] = "Show what the time of jobs and slots was spent on";

  std::vector<std::string> jobs;
  bool all = false;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", jobs, "Only these jobs [default: all jobs, and all slots]");
    flags.Add("--all", all, "Include jobs that ended more than a day ago");
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::ListJobsResponse answer, ListJobs(context));
    Terminal& terminal = context.terminal;
    Json list = Json::array();
    for (const v1::Job& job : answer.jobs())
      list.push_back({{"id", job.id()},
                      {"name", job.name()},
                      {"state", StateWord(job.state())},
                      {"goodput", GoodputJson(job.goodput())}});
    // Covers every job so far, so it is absent when jobs are named.
    if (answer.has_cluster())
      list.push_back({{"id", "cluster"},
                      {"name", nullptr},
                      {"state", nullptr},
                      {"goodput", GoodputJson(answer.cluster())}});
    if (PrintStructured(terminal.out, context.output, list, "id")) return kExitSuccess;
    const bool wide = context.output == OutputFormat::kWide;
    Table table(Headers(wide));
    for (const v1::Job& job : answer.jobs())
      table.Add(
          Row({job.id(), Printable(job.name()), StateWord(job.state())}, job.goodput(), wide));
    if (answer.has_cluster()) table.Add(Row({"cluster", "-", "-"}, answer.cluster(), wide));
    table.Print(terminal.out, terminal.color);
    return kExitSuccess;
  }

 private:
  Result<v1::ListJobsResponse> ListJobs(CommandContext& context) const {
    if (jobs.empty()) return context.client.ListJobs(all);
    v1::ListJobsResponse found;
    for (const std::string& name : jobs) {
      MUSTER_ASSIGN_OR_RETURN(*found.add_jobs(), context.client.GetJob(name));
    }
    return found;
  }
};

template void AddVerb<Goodput>(CommandLine& line);

}  // namespace muster::verbs
