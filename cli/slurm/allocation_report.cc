#include "cli/slurm/allocation_report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "cli/jobs/job_json.h"
#include "cli/slurm/allocation_access.h"

namespace muster {
namespace {

// For each of three calls: the status of many jobs must not hang on one whose nodes are cut off.
constexpr Duration kCallLimit = std::chrono::seconds(3);

// The newest attempt that a recovery started; null without one.
const v1::AttemptInfo* LastRecovery(const v1::Job& job) {
  for (int i = job.attempts_size() - 1; i >= 0; --i)
    if (job.attempts(i).generation() > 1 && job.attempts(i).has_seconds()) return &job.attempts(i);
  return nullptr;
}

// Stages that did not happen, or have not ended, are negative.
double TotalOf(const v1::StageSeconds& stages) {
  double total = 0;
  for (const double stage :
       {stages.detect(), stages.abort(), stages.reform(), stages.load(), stages.first_step()})
    total += std::max(0.0, stage);
  return total;
}

std::string Formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

Result<std::string> JobOfAllocation(ClusterClient& client) {
  MUSTER_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, client.ListJobs(/*all=*/true));
  if (jobs.jobs_size() == 0)
    return NotFound("the allocation's coordinator has no job yet; try again in a moment");
  return jobs.jobs(0).id();
}

std::optional<AllocationReport> AskAllocation(const SlurmJob& job, const std::string& dir,
                                              Interrupt& interrupt) {
  if (!job.leader || job.slurm.state != "RUNNING") return std::nullopt;
  AllocationAccess access(job.state_dir, CurrentUser());
  ClusterClient client(dir, interrupt, [&access] { return access.Find(); });
  client.LimitCalls(kCallLimit);
  const auto id = JobOfAllocation(client);
  if (!id.ok()) return std::nullopt;
  auto found = client.GetJob(*id);
  const auto nodes = client.ListNodes();
  if (!found.ok() || !nodes.ok()) return std::nullopt;
  const auto ready =
      std::count_if(nodes->nodes().begin(), nodes->nodes().end(),
                    [](const v1::Node& node) { return node.state() == v1::NODE_STATE_READY; });
  return AllocationReport{*std::move(found), static_cast<int>(ready), nodes->nodes_size()};
}

Json ReportJson(const AllocationReport& report) {
  const v1::Job& job = report.job;
  Json json = {{"id", job.id()},
               {"state", StateWord(job.state())},
               {"step", job.step()},
               {"max_steps", job.max_steps() > 0 ? Json(job.max_steps()) : Json(nullptr)},
               {"loss", HasLoss(job) ? Json(job.loss()) : Json(nullptr)},
               {"generation", job.generation()},
               {"nodes_ready", report.nodes_ready},
               {"nodes", report.nodes},
               {"last_recovery", nullptr}};
  if (const v1::AttemptInfo* recovery = LastRecovery(job))
    json["last_recovery"] = {{"generation", recovery->generation()},
                             {"tier", recovery->tier()},
                             {"seconds", TotalOf(recovery->seconds())}};
  return json;
}

std::string ReportText(const AllocationReport& report) {
  const v1::Job& job = report.job;
  std::string text = StateWord(job.state()) + ", step " + std::to_string(job.step());
  if (job.max_steps() > 0) text += "/" + std::to_string(job.max_steps());
  if (HasLoss(job)) text += Formatted(", loss %.4f", job.loss());
  text += ", " + std::to_string(report.nodes_ready) + " of " + std::to_string(report.nodes) +
          " nodes ready, generation " + std::to_string(job.generation());
  if (const v1::AttemptInfo* recovery = LastRecovery(job)) {
    text += Formatted(", recovered in %.1f s", TotalOf(recovery->seconds()));
    if (!recovery->tier().empty()) text += " (" + recovery->tier() + ")";
  }
  return text;
}

}  // namespace muster
