// What an upgrade, or the way back, means for a running cluster: decided from the version tables of
// both builds (common/base/version_table.h) and what runs now.
//
// Pure; any thread. `muster upgrade plan` gathers the facts and prints the plan.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/base/version_table.h"

namespace muster::upgrade {

// A build: its version, and its table by key. An empty table: of a version before 0.2.0.
struct Build {
  std::string version;
  std::map<std::string, VersionRange> table;

  friend bool operator==(const Build&, const Build&) = default;
};

struct CoordinatorFacts {
  std::string address;
  bool leads = false;
  Build build;
};

struct WorkerFacts {
  std::string node;
  Build build;
};

// A job whose ranks run.
struct JobFacts {
  std::string id;
  std::string name;
  bool trains = true;                // else a command, whose state is its own
  std::vector<std::string> nodes;    // of its gang
  bool has_snapshot = false;         // of every rank
  std::int64_t checkpoint_step = 0;  // of its newest committed checkpoint; 0: it has none
};

struct ClusterFacts {
  std::string store;  // sqlite, journal, etcd; the leader's build says which version it has
  std::vector<CoordinatorFacts> coordinators;  // one leads
  std::vector<WorkerFacts> workers;
  std::vector<JobFacts> jobs;
};

enum class PartAction { kKeep, kReplace, kRefuse };
// One process to replace, in the order of the plan.
struct PlannedPart {
  std::string kind;  // coordinator, worker
  std::string name;
  std::string version;
  PartAction action = PartAction::kReplace;
  std::vector<std::string> why;
};

enum class JobAction {
  kAdopt,    // its ranks go on
  kRestart,  // from `from`
  kRefuse,   // the upgrade must not be made while it runs
};
struct PlannedJob {
  std::string id;
  std::string name;
  std::vector<std::string> nodes;
  JobAction action = JobAction::kAdopt;
  std::string from;  // snapshot, checkpoint, start; empty unless it is restarted
  std::vector<std::string> why;
};

struct UpgradePlan {
  std::string from;  // the leader's version
  std::string to;
  std::vector<PlannedPart> parts;
  std::vector<PlannedJob> jobs;

  // Whether nothing is refused.
  bool possible() const;
};

UpgradePlan PlanUpgrade(const Build& to, const ClusterFacts& facts);

// Whether version `a` ("0.2.0", "0.3.0-alpha") comes before `b`.
bool IsOlder(const std::string& a, const std::string& b);

std::string Name(PartAction action);
std::string Name(JobAction action);

}  // namespace muster::upgrade
