// get: lists jobs, or shows one.

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/jobs/job_json.h"
#include "common/job_spec/queue_names.h"

namespace muster::verbs {
namespace {

struct Columns {
  bool wide = false;
  // Only where a job has another one than the default; owners where there are several.
  bool queue = false;
  bool priority_class = false;
  std::string owner = {};  // of the first job
  bool owners = false;

  void Fit(const v1::Job& job) {
    queue = queue || QueueName(job.queue()) != kDefaultQueue;
    if (owner.empty()) owner = job.owner();
    owners = owners || job.owner() != owner;
    priority_class = priority_class || ClassName(job.priority_class()) != kNormalClass;
  }
};

std::vector<std::string> JobHeaders(const Columns& columns) {
  std::vector<std::string> headers = {"ID",   "NAME",  "STATE", "GEN", "STEP",
                                      "LOSS", "TOK/S", "ETA",   "AGE"};
  if (columns.owners || columns.wide) headers.push_back("OWNER");
  if (columns.queue) headers.push_back("QUEUE");
  if (columns.priority_class) headers.push_back("CLASS");
  if (columns.wide) headers.insert(headers.end(), {"PRIORITY", "RESTARTS", "OUTPUT", "REASON"});
  return headers;
}

std::vector<std::string> JobRow(const v1::Job& job, const Columns& columns,
                                std::int64_t now_unix_ms) {
  std::string step = std::to_string(job.step());
  if (job.max_steps() > 0) step += "/" + std::to_string(job.max_steps());
  const bool live = !IsTerminal(job.state());
  std::vector<std::string> row = {
      job.id(),
      job.name(),
      StateWord(job.state()),
      std::to_string(job.generation()),
      step,
      HasLoss(job) ? LossText(job.loss(), 3) : "-",
      job.tokens_per_second() > 0 ? Fixed(job.tokens_per_second(), 0) : "-",
      live && job.eta_seconds() >= 0 ? HumanSeconds(job.eta_seconds()) : "-",
      HumanSeconds(static_cast<double>(now_unix_ms - job.submitted_unix_ms()) / 1000)};
  if (columns.owners || columns.wide) row.push_back(job.owner().empty() ? "-" : job.owner());
  if (columns.queue) row.push_back(QueueName(job.queue()));
  if (columns.priority_class) row.push_back(ClassName(job.priority_class()));
  if (columns.wide)
    row.insert(row.end(), {std::to_string(job.priority()), std::to_string(job.restarts()),
                           job.output_dir(), Printable(job.reason())});
  return row;
}

void PrintTable(Terminal& terminal, const std::vector<const v1::Job*>& jobs, bool wide) {
  Columns columns{.wide = wide};
  for (const v1::Job* job : jobs) columns.Fit(*job);
  Table table(JobHeaders(columns));
  const std::int64_t now = SystemClock().UnixMillis();
  for (const v1::Job* job : jobs) table.Add(JobRow(*job, columns, now));
  table.Print(terminal.out, terminal.color);
}

}  // namespace

struct Get {
  static constexpr char kName[] = "get";
  static constexpr char kSummary[] = "List jobs, or show one";

  std::string job;
  bool all = false;
  std::string owner;
  std::string queue;
  int limit = 0;

  void AddFlags(Flags& flags) {
    flags.Add("JOB", job, kJobHelp);
    flags.Add("--all", all, "Include archived jobs, and jobs that ended more than a day ago");
    flags.Add("--owner USER", owner, "Show this user's jobs only");
    flags.Add("--queue QUEUE", queue, "Show jobs of this queue only");
    flags.Add("--limit N", limit, "Show the newest N jobs only").Range(1, 1e6);
  }

  CommandResult Run(CommandContext& context) const {
    const bool wide = context.output == OutputFormat::kWide;
    Terminal& terminal = context.terminal;
    std::vector<const v1::Job*> shown;
    v1::Job found;
    v1::ListJobsResponse jobs;
    if (!job.empty()) {
      MUSTER_ASSIGN_OR_RETURN(found, context.client.GetJob(job));
      if (PrintStructured(terminal.out, context.output, JobJson(found), "id")) return kExitSuccess;
      shown.push_back(&found);
    } else {
      v1::ListJobsRequest request;
      request.set_all(all);
      request.set_owner(owner);
      request.set_queue(queue);
      MUSTER_ASSIGN_OR_RETURN(jobs, context.client.ListJobs(std::move(request), limit));
      if (PrintStructured(terminal.out, context.output, JobListJson(jobs), "id"))
        return kExitSuccess;
      if (jobs.jobs().empty()) terminal.err << "no jobs; next: muster submit FILE\n";
      for (const auto& each : jobs.jobs()) shown.push_back(&each);
    }
    PrintTable(terminal, shown, wide);
    return kExitSuccess;
  }
};

template void AddVerb<Get>(CommandLine& line);

}  // namespace muster::verbs
