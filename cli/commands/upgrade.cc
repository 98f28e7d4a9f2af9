// upgrade: what another version of Muster would mean for this cluster.

#include <algorithm>
#include <set>
#include <utility>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "cli/upgrade/build.h"
#include "cli/upgrade/upgrade_plan.h"
#include "common/job_spec/parse.h"

namespace muster::verbs {
namespace {

using upgrade::Build;
using upgrade::ClusterFacts;

constexpr char kToHelp[] =
    "The new release: its muster, the directory that holds it, or a file with what its "
    "`muster version -o json` prints";
constexpr char kUpgradeExamples[] =
    "Examples:\n"
    "  muster upgrade plan --to /opt/muster/0.3.0\n"
    "  muster upgrade plan --to versions-0.3.0.json -o json";

bool HasRanks(v1::JobState state) {
  return state == v1::JOB_STATE_STARTING || state == v1::JOB_STATE_RUNNING ||
         state == v1::JOB_STATE_RECOVERING || state == v1::JOB_STATE_STOPPING;
}

upgrade::JobFacts FactsOf(const v1::Job& job) {
  upgrade::JobFacts facts{.id = job.id(), .name = job.name()};
  const Result<JobSpec> spec = ParseJobSpec(job.spec_yaml());
  facts.trains = !spec.ok() || spec->command.empty();
  std::set<std::string> nodes;
  for (const v1::RankStatus& rank : job.ranks()) nodes.insert(rank.node());
  facts.nodes.assign(nodes.begin(), nodes.end());
  facts.has_snapshot = job.progress_size() > 0 && job.progress_size() == job.ranks_size();
  for (const v1::RankProgress& rank : job.progress())
    facts.has_snapshot &= rank.snapshot_step() >= 0;
  for (const v1::CheckpointInfo& checkpoint : job.checkpoints())
    if (checkpoint.refused().empty())
      facts.checkpoint_step = std::max<std::int64_t>(facts.checkpoint_step, checkpoint.step());
  return facts;
}

Status AddCoordinators(CommandContext& context, ClusterFacts* facts) {
  MUSTER_ASSIGN_OR_RETURN(const v1::VersionResponse leader, context.client.Version());
  if (leader.versions().empty())
    return FailedPrecondition("the coordinator (version " + leader.version() +
                              ") does not say which versions it reads: it is older than 0.2.0; "
                              "follow the changelog of 0.2.0");
  facts->store = leader.store();
  MUSTER_ASSIGN_OR_RETURN(const std::vector<CoordinatorAnswer> answers,
                          context.client.AskCoordinators());
  bool led = false;
  for (const CoordinatorAnswer& each : answers) {
    const bool leads = each.status.ok() && !each.version.stands_by() && !std::exchange(led, true);
    facts->coordinators.push_back({each.address, leads, upgrade::BuildOf(each.version)});
  }
  if (!led) facts->coordinators.push_back({"", true, upgrade::BuildOf(leader)});
  return OkStatus();
}

// A worker that has not connected since the coordinator started has the versions of one that runs
// the same version, if there is one.
void AddWorkers(const v1::ListNodesResponse& nodes, ClusterFacts* facts) {
  for (const v1::Node& node : nodes.nodes()) {
    Build build = upgrade::BuildOf(node);
    for (const upgrade::CoordinatorFacts& each : facts->coordinators)
      if (build.table.empty() && each.build.version == build.version) build = each.build;
    facts->workers.push_back({node.name(), std::move(build)});
  }
}

Result<ClusterFacts> Gather(CommandContext& context) {
  ClusterFacts facts;
  MUSTER_RETURN_IF_ERROR(AddCoordinators(context, &facts));
  MUSTER_ASSIGN_OR_RETURN(const v1::ListNodesResponse nodes, context.client.ListNodes());
  AddWorkers(nodes, &facts);
  MUSTER_ASSIGN_OR_RETURN(const v1::ListJobsResponse jobs, context.client.ListJobs(false));
  for (const v1::Job& listed : jobs.jobs()) {
    if (!HasRanks(listed.state())) continue;
    MUSTER_ASSIGN_OR_RETURN(const v1::Job job, context.client.GetJob(listed.id()));
    facts.jobs.push_back(FactsOf(job));
  }
  return facts;
}

std::string Reasons(const std::vector<std::string>& why) {
  std::string all;
  for (const std::string& each : why) all += (all.empty() ? "" : "; ") + each;
  return OrDash(all);
}

Json JsonOf(const upgrade::UpgradePlan& plan) {
  Json json = {{"from", plan.from},
               {"to", plan.to},
               {"possible", plan.possible()},
               {"parts", Json::array()},
               {"jobs", Json::array()}};
  for (const upgrade::PlannedPart& part : plan.parts)
    json["parts"].push_back({{"part", part.kind},
                             {"name", part.name},
                             {"version", TextOrNull(part.version)},
                             {"action", Name(part.action)},
                             {"why", part.why}});
  for (const upgrade::PlannedJob& job : plan.jobs)
    json["jobs"].push_back({{"id", job.id},
                            {"name", job.name},
                            {"nodes", job.nodes},
                            {"action", Name(job.action)},
                            {"from", TextOrNull(job.from)},
                            {"why", job.why}});
  return json;
}

void PrintTables(const Terminal& terminal, const upgrade::UpgradePlan& plan) {
  Table parts({"STEP", "PART", "NAME", "VERSION", "ACTION", "WHY"});
  int step = 0;
  for (const upgrade::PlannedPart& part : plan.parts)
    parts.Add({std::to_string(++step), part.kind, OrDash(part.name), OrDash(part.version),
               Name(part.action), Reasons(part.why)});
  parts.Print(terminal.out, terminal.color);
  if (!plan.jobs.empty()) terminal.out << "\n";
  Table jobs({"JOB", "NAME", "NODES", "ACTION", "FROM", "WHY"});
  for (const upgrade::PlannedJob& job : plan.jobs)
    jobs.Add({job.id, job.name, std::to_string(job.nodes.size()), Name(job.action),
              OrDash(job.from), Reasons(job.why)});
  if (!plan.jobs.empty()) jobs.Print(terminal.out, terminal.color);
  terminal.out << "\n"
               << plan.from << " -> " << plan.to << ": "
               << (plan.possible() ? "possible\n" : "refused\n");
}

}  // namespace

struct UpgradePlanOf {
  static constexpr char kName[] = "plan";
  static constexpr char kSummary[] =
      "Show in which order another version replaces this one, and what becomes of each job";

  std::string to;

  void AddFlags(Flags& flags) {
    flags.Add("--to PATH", to, kToHelp).Required();
    flags.SetFooter(kUpgradeExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const Build build, upgrade::ReadBuild(to));
    MUSTER_ASSIGN_OR_RETURN(const ClusterFacts facts, Gather(context));
    const upgrade::UpgradePlan plan = upgrade::PlanUpgrade(build, facts);
    if (!PrintStructured(context.terminal.out, context.output, JsonOf(plan), "to"))
      PrintTables(context.terminal, plan);
    return plan.possible() ? kExitSuccess : kExitConflict;
  }
};

template void AddVerb<UpgradePlanOf>(CommandLine& line);

}  // namespace muster::verbs
