// goodput: what the time of jobs and of the cluster went to.

#include "cli/goodput.h"

#include "cli/commands/commands.h"
#include "cli/exit_code.h"
#include "cli/job_json.h"

namespace muster {
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

Result<v1::ListJobsResponse> Ask(CommandContext& context, const GoodputOptions& options) {
  if (options.jobs.empty()) return context.client.ListJobs(options.all);
  v1::ListJobsResponse jobs;
  for (const std::string& name : options.jobs) {
    MUSTER_ASSIGN_OR_RETURN(*jobs.add_jobs(), context.client.GetJob(name));
  }
  return jobs;
}

}  // namespace

CommandResult RunGoodput(CommandContext& context, const GoodputOptions& options) {
  MUSTER_ASSIGN_OR_RETURN(const v1::ListJobsResponse answer, Ask(context, options));
  Terminal& terminal = context.terminal;
  Json list = Json::array();
  for (const v1::Job& job : answer.jobs())
    list.push_back({{"id", job.id()},
                    {"name", job.name()},
                    {"state", StateWord(job.state())},
                    {"goodput", GoodputJson(job.goodput())}});
  // Of all jobs that ever were; who asks for some is told of those.
  if (answer.has_cluster())
    list.push_back({{"id", "cluster"},
                    {"name", nullptr},
                    {"state", nullptr},
                    {"goodput", GoodputJson(answer.cluster())}});
  if (PrintStructured(terminal.out, context.output, list, "id")) return kExitSuccess;
  const bool wide = context.output == OutputFormat::kWide;
  Table table(Headers(wide));
  for (const v1::Job& job : answer.jobs())
    table.Add(Row({job.id(), Printable(job.name()), StateWord(job.state())}, job.goodput(), wide));
  if (answer.has_cluster()) table.Add(Row({"cluster", "-", "-"}, answer.cluster(), wide));
  table.Print(terminal.out, terminal.color);
  return kExitSuccess;
}

}  // namespace muster
