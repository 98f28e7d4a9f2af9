#include "cli/upgrade/upgrade_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

namespace muster::upgrade {
namespace {

// The row of a table in which a cluster's store is.
std::string StoreKey(const std::string& store) {
  if (store == "etcd") return version_key::kEtcd;
  return store == "journal" ? version_key::kJournal : version_key::kStoreSchema;
}

std::optional<VersionRange> Row(const Build& build, const std::string& key) {
  const auto row = build.table.find(key);
  if (row == build.table.end()) return std::nullopt;
  return row->second;
}

std::string Words(std::string key) {
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

// What keeps `to` from reading what `running` has written, or from speaking with it; nothing:
// nothing does.
std::optional<std::string> Unread(const Build& to, const Build& running, const std::string& key) {
  const auto theirs = Row(running, key), own = Row(to, key);
  if (!theirs || !own) return Words(key) + ": one of the versions does not say what it reads";
  if (own->contains(theirs->max)) return std::nullopt;
  return Words(key) + " " + std::to_string(theirs->max) + " is outside " + RangeText(*own) +
         ", which " + to.version + " reads";
}

std::optional<std::string> Unspoken(const Build& to, const Build& running, const std::string& key) {
  const auto theirs = Row(running, key), own = Row(to, key);
  if (!theirs || !own) return Words(key) + ": one of the versions does not say what it speaks";
  if (CommonVersion(*theirs, *own)) return std::nullopt;
  return Words(key) + " " + RangeText(*theirs) + " of " + running.version + " and " +
         RangeText(*own) + " of " + to.version + " have none in common";
}

// Why the coordinators cannot be replaced; nothing: they can.
std::optional<std::string> StoreRefusal(const Build& to, const Build& leader,
                                        const std::string& store) {
  const std::string key = StoreKey(store);
  const std::optional<std::string> unread = Unread(to, leader, key);
  if (!unread) return std::nullopt;
  const auto theirs = Row(leader, key), own = Row(to, key);
  if (!theirs || !own || theirs->max < own->min)
    return *unread + "; upgrade to a version between the two first, which converts the store";
  std::string way_out = "restore a back-up that a version with " + Words(key) + " " +
                        std::to_string(own->max) + " has made";
  if (key == version_key::kStoreSchema)
    way_out +=
        ", or, with the coordinator ended, put state.db.schema-NUMBER in the place of "
        "state.db: the copy that was kept before the file was converted";
  return *unread + ": the store is not taken back; " + way_out +
         "; what was decided since is not in either";
}

std::vector<std::string> NotesOfStore(const Build& to, const Build& leader,
                                      const std::string& store) {
  const std::string key = StoreKey(store);
  const auto theirs = Row(leader, key), own = Row(to, key);
  if (!theirs || !own || own->max == theirs->max) return {};
  std::string note = "converts the store: " + Words(key) + " " + std::to_string(theirs->max) +
                     " -> " + std::to_string(own->max);
  note += key == version_key::kStoreSchema
              ? ", a copy is kept as state.db.schema-" + std::to_string(theirs->max)
              : "; make a back-up before";
  return {note};
}

const WorkerFacts* FindWorker(const ClusterFacts& facts, const std::string& node) {
  const auto found = std::ranges::find(facts.workers, node, &WorkerFacts::node);
  return found == facts.workers.end() ? nullptr : &*found;
}

// Decides about one job, from the worker of each of its nodes.
class JobDecision {
 public:
  JobDecision(const Build& to, const ClusterFacts& facts, const JobFacts& job)
      : to_(to), facts_(facts), job_(job) {}

  PlannedJob Decide() {
    for (const std::string& node : job_.nodes) Look(node);
    PlannedJob plan{.id = job_.id, .name = job_.name, .nodes = job_.nodes, .why = why_};
    if (!guardians_lost_ && !ranks_lost_ && !state_unread_) return plan;
    plan.action = JobAction::kRestart;
    plan.from = From();
    if (!state_unread_) return plan;
    plan.action = JobAction::kRefuse;
    plan.from.clear();
    plan.why.push_back("let the job end before, or export its checkpoint with " + running_ +
                       " (muster-trainer export) and start a new one from it (train.init_from)");
    return plan;
  }

 private:
  void Look(const std::string& node) {
    const WorkerFacts* worker = FindWorker(facts_, node);
    if (worker == nullptr || worker->build.table.empty()) {
      Add("node " + node + " does not say its versions");
      guardians_lost_ = true;
      return;
    }
    const Build& build = worker->build;
    if (build == to_) return;
    running_ = build.version;
    guardians_lost_ |= Add(Unspoken(to_, build, version_key::kProtocol));
    guardians_lost_ |= Add(Unspoken(to_, build, version_key::kGuardianPackets));
    if (!job_.trains) return;
    ranks_lost_ |= Add(Unspoken(to_, build, version_key::kTrainerMessages));
    ranks_lost_ |= Add(Unread(to_, build, version_key::kProgressPage));
    snapshot_unread_ |= Unread(to_, build, version_key::kSnapshot).has_value();
    if (job_.checkpoint_step == 0) return;
    state_unread_ |= Add(Unread(to_, build, version_key::kShard));
    state_unread_ |= Add(Unread(to_, build, version_key::kManifest));
  }

  // Snapshots lie with the guardians.
  std::string From() const {
    if (job_.trains && job_.has_snapshot && !guardians_lost_ && !snapshot_unread_)
      return "snapshot";
    return job_.trains && job_.checkpoint_step > 0 ? "checkpoint" : "start";
  }

  bool Add(std::optional<std::string> reason) {
    if (!reason) return false;
    if (std::ranges::find(why_, *reason) == why_.end()) why_.push_back(*std::move(reason));
    return true;
  }

  const Build& to_;
  const ClusterFacts& facts_;
  const JobFacts& job_;
  std::vector<std::string> why_;
  std::string running_;
  bool guardians_lost_ = false;   // a new worker cannot take them over
  bool ranks_lost_ = false;       // nor understand the ranks
  bool snapshot_unread_ = false;  // new ranks cannot read it
  bool state_unread_ = false;     // nor a checkpoint
};

// Those that stand by first: the lead then changes once.
std::vector<PlannedPart> Coordinators(const Build& to, const ClusterFacts& facts,
                                      const Build& leader,
                                      const std::optional<std::string>& refusal) {
  std::vector<PlannedPart> parts;
  for (const bool leads : {false, true}) {
    for (const CoordinatorFacts& each : facts.coordinators) {
      if (each.leads != leads) continue;
      PlannedPart part{.kind = "coordinator", .name = each.address, .version = each.build.version};
      if (refusal) {
        part.action = PartAction::kRefuse;
        part.why = {*refusal};
      } else if (each.build == to) {
        part.action = PartAction::kKeep;
      } else if (leads) {
        part.why = NotesOfStore(to, leader, facts.store);
      }
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

std::vector<PlannedPart> Workers(const Build& to, const ClusterFacts& facts) {
  std::vector<PlannedPart> parts;
  for (const WorkerFacts& each : facts.workers) {
    PlannedPart part{.kind = "worker", .name = each.node, .version = each.build.version};
    if (each.build == to) {
      part.action = PartAction::kKeep;
    } else if (each.build.table.empty()) {
      part.why.push_back("it is not connected, or older than 0.2.0: its versions are not known");
    } else {
      if (const auto unspoken = Unspoken(to, each.build, version_key::kProtocol))
        part.why.push_back(*unspoken + ": it is refused until it is replaced");
      if (const auto unspoken = Unspoken(to, each.build, version_key::kLauncherPackets))
        part.why.push_back(*unspoken + ": replace muster-launcher with it");
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// The numbers of a version; a pre-release comes before its release.
std::array<int, 4> NumbersOf(const std::string& version) {
  std::array<int, 4> numbers{0, 0, 0, version.find('-') == std::string::npos ? 1 : 0};
  const char* at = version.data();
  const char* const end = at + version.size();
  for (int i = 0; i < 3 && at != end; ++i) {
    const auto parsed = std::from_chars(at, end, numbers[static_cast<std::size_t>(i)]);
    if (parsed.ec != std::errc()) break;
    at = parsed.ptr;
    if (at == end || *at != '.') break;
    ++at;
  }
  return numbers;
}

}  // namespace

bool IsOlder(const std::string& a, const std::string& b) {
  const auto x = NumbersOf(a), y = NumbersOf(b);
  return x != y ? x < y : a < b;
}

bool UpgradePlan::possible() const {
  return std::ranges::find(parts, PartAction::kRefuse, &PlannedPart::action) == parts.end() &&
         std::ranges::find(jobs, JobAction::kRefuse, &PlannedJob::action) == jobs.end();
}

UpgradePlan PlanUpgrade(const Build& to, const ClusterFacts& facts) {
  const auto leading = std::ranges::find(facts.coordinators, true, &CoordinatorFacts::leads);
  const Build leader = leading == facts.coordinators.end() ? Build{} : leading->build;
  const std::optional<std::string> refusal = StoreRefusal(to, leader, facts.store);
  UpgradePlan plan{.from = leader.version, .to = to.version};
  std::vector<PlannedPart> coordinators = Coordinators(to, facts, leader, refusal);
  std::vector<PlannedPart> workers = Workers(to, facts);
  // No coordinator is ever older than its workers.
  const bool down = IsOlder(to.version, leader.version);
  plan.parts = down ? std::move(workers) : std::move(coordinators);
  std::vector<PlannedPart>& last = down ? coordinators : workers;
  std::ranges::move(last, std::back_inserter(plan.parts));
  for (const JobFacts& job : facts.jobs) {
    if (!refusal) {
      plan.jobs.push_back(JobDecision(to, facts, job).Decide());
    } else {
      plan.jobs.push_back({.id = job.id,
                           .name = job.name,
                           .nodes = job.nodes,
                           .action = JobAction::kRefuse,
                           .why = {*refusal}});
    }
  }
  return plan;
}

std::string Name(PartAction action) {
  switch (action) {
    case PartAction::kKeep: return "keep";
    case PartAction::kReplace: return "replace";
    case PartAction::kRefuse: return "refused";
  }
  return "";
}

std::string Name(JobAction action) {
  switch (action) {
    case JobAction::kAdopt: return "adopted";
    case JobAction::kRestart: return "restarted";
    case JobAction::kRefuse: return "refused";
  }
  return "";
}

}  // namespace muster::upgrade
