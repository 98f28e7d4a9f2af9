#include "coordinator/control/queries.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "common/base/wall_time.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/words.h"

namespace muster::control {
namespace {

JobView ViewOf(const JobEntry& job) {
  JobView view;
  view.record = &job.record;
  if (job.wait) view.wait = &*job.wait;
  view.backoff = &job.backoff;
  view.kept_back = IsKeptBack(job);
  view.attempts = &job.attempts;
  view.checkpoints = &job.checkpoints;
  view.progress = &job.progress;
  view.version = job.version;
  view.step_seconds = job.step_seconds;
  view.spec = &job.spec;
  view.ledger = &job.ledger;
  // The earlier pace of a stopped job is not its current pace.
  if (job.record.state != JobState::kRunning) return view;
  if (job.detectors) view.straggler = job.detectors->stragglers.worst();
  if (!job.progress.empty()) view.tokens_per_second = job.progress.front().tokens_per_second;
  if (job.step_seconds > 0 && job.record.max_steps > 0) {
    const Step left = std::max<Step>(0, job.record.max_steps - job.record.step);
    view.eta_seconds = double(left) * job.step_seconds;
  }
  return view;
}

// Appends two at most: ids of `jobs` that begin with `prefix` and are taken.
template <typename Jobs, typename Takes>
void AddIdsWith(const std::string& prefix, const Jobs& jobs, const Takes& takes,
                std::vector<JobId>* ids) {
  auto at = jobs.lower_bound(JobId{prefix});
  for (int n = 0; n < 2 && at != jobs.end() && at->first.value.starts_with(prefix); ++at) {
    if (!takes(at->second)) continue;
    ids->push_back(at->first);
    ++n;
  }
}

using ArchivedEntry = Archive::Jobs::value_type;
using KnownJob = std::variant<const JobEntry*, const ArchivedEntry*>;

// The job in memory or in the archive that the id, unique prefix or name means, of those that the
// caller may see. Whose an archived job is the store knows: with a filter, only its whole id means
// it.
Result<KnownJob> Resolve(const State& state, const std::string& wanted, const JobFilter& filter) {
  const auto sees = [&filter](const JobEntry& job) { return !filter || filter(job.record); };
  if (wanted.empty()) return InvalidArgument("no job named; give an id, a part of one or a name");
  if (const auto exact = state.jobs.find(JobId{wanted});
      exact != state.jobs.end() && sees(exact->second)) {
    return KnownJob(&exact->second);
  }
  const auto& archived = state.archive.jobs();
  if (const auto exact = archived.find(JobId{wanted}); exact != archived.end())
    return KnownJob(&*exact);
  for (auto at = state.order.rbegin(); at != state.order.rend(); ++at) {
    const JobEntry& named = state.jobs.at(at->second);
    if (named.record.name == wanted && sees(named)) return KnownJob(&named);
  }
  std::vector<JobId> found;
  AddIdsWith(wanted, state.jobs, sees, &found);
  const bool is_archived = found.empty();
  AddIdsWith(
      wanted, archived, [&filter](const auto&) { return !filter; }, &found);
  if (found.empty()) return NotFound("no job '" + wanted + "'; 'muster get' lists the jobs");
  if (found.size() > 1) {
    return InvalidArgument("'" + wanted + "' matches job " + found[0].value + " and job " +
                           found[1].value + "; give more digits");
  }
  if (!is_archived) return KnownJob(&state.jobs.at(found.front()));
  return KnownJob(&*archived.find(found.front()));
}

}  // namespace

Result<JobView> FindJob(const State& state, std::string_view job, const JobFilter& filter) {
  MUSTER_ASSIGN_OR_RETURN(const KnownJob known, Resolve(state, std::string(job), filter));
  if (const auto* live = std::get_if<const JobEntry*>(&known)) return ViewOf(**live);
  const auto& [id, archived] = *std::get<const ArchivedEntry*>(known);
  return FailedPrecondition("job " + id.value + " is over (" + std::string(Name(archived.state)) +
                            ") and archived; 'muster describe " + id.value + "' shows it");
}

const Archive::Jobs::value_type* FindArchived(const State& state, std::string_view job,
                                              const JobFilter& filter) {
  const Result<KnownJob> known = Resolve(state, std::string(job), filter);
  const auto* archived = known.ok() ? std::get_if<const ArchivedEntry*>(&*known) : nullptr;
  return archived == nullptr ? nullptr : *archived;
}

std::vector<JobView> Jobs(const State& state) {
  std::vector<JobView> views;
  views.reserve(state.order.size());
  for (const auto& [at, id] : state.order) views.push_back(ViewOf(state.jobs.at(id)));
  return views;
}

std::vector<NodeView> Nodes(const State& state) {
  std::vector<NodeView> views;
  for (const auto& [name, node] : state.nodes) {
    views.push_back({.record = &node.record,
                     .slots_used = UsedSlots(state, node),
                     .connected = node.session != 0,
                     .heard_at = node.heard_at,
                     .holds = &state.holds.On(name),
                     .allocatable = WholeOf(state, node).all.devices,
                     .others = DevicesOfOthers(state, node),
                     .versions = &node.versions});
  }
  return views;
}

Result<LogLocation> LocateLog(const State& state, const JobView& view, int rank,
                              Generation generation) {
  const std::string name = "job " + view.record->id.value;
  if (view.attempts->empty()) {
    return NotFound(name + " has no log yet: it waits for a gang");
  }
  const AttemptRecord* attempt = nullptr;
  for (const AttemptRecord& candidate : *view.attempts) {
    if (generation == 0 || candidate.generation == generation) attempt = &candidate;
  }
  if (attempt == nullptr) {
    return NotFound(name + " has no generation " + std::to_string(generation) + "; its newest is " +
                    std::to_string(view.record->generation));
  }
  if (attempt->ranks.empty()) {
    return NotFound("generation " + std::to_string(attempt->generation) + " of " + name +
                    " is no longer in memory; its logs are files below " + view.record->output_dir +
                    "/logs/" + std::to_string(attempt->generation) + " on its nodes");
  }
  if (rank < 0 || rank >= static_cast<int>(attempt->ranks.size())) {
    return NotFound(name + " has no rank " + std::to_string(rank) + "; its ranks are 0 to " +
                    std::to_string(attempt->ranks.size() - 1));
  }
  const RankRecord& record = attempt->ranks[rank];
  LogLocation location{
      view.record->id, attempt->generation, record.node, 0, view.record->output_dir, false};
  location.account = AccountOf(state, *view.record);
  location.final = record.state == RankState::kExited || attempt->state == AttemptState::kEnded;
  const auto node = state.nodes.find(record.node);
  if (node == state.nodes.end() || node->second.session == 0) {
    return Unavailable("node " + record.node.value +
                       ", which has the log, is not connected; the file is " +
                       view.record->output_dir + "/logs/" + std::to_string(attempt->generation) +
                       "/rank-" + std::to_string(rank) + ".log there");
  }
  location.session = node->second.session;
  return location;
}

int PendingJobs(const State& state) {
  return static_cast<int>(std::count_if(
      state.live.begin(), state.live.end(),
      [](const auto& entry) { return entry.second->pending() && !IsKeptBack(*entry.second); }));
}

Goodput ClusterGoodput(const State& state, TimePoint now, bool stored) {
  Goodput sum{.micros = state.archived_time};
  for (const auto& [id, job] : state.jobs) {
    sum += stored ? job.ledger.StoredAt(job.record.usage, now) : job.ledger.At(now);
  }
  for (const auto& [name, node] : state.nodes) sum += node.unused.At(now);
  return sum;
}

}  // namespace muster::control

namespace muster {

std::string JobView::reason() const {
  if (kept_back && record->held)
    return record->hold_reason.empty() ? "held by a user" : "held: " + record->hold_reason;
  if (kept_back) return "begins at " + UtcTime(record->begin_unix_ms);
  if (wait == nullptr) return record->reason;
  const std::int64_t start = record->promise.start_unix_ms;
  return WaitingText(*wait, *backoff) +
         (start == 0 ? "" : "; starts at " + UtcTime(start) + " at the latest");
}

NodeUse UseOf(const NodeView& node) {
  NodeUse use;
  const auto add = [&use](const std::vector<std::string>& ids, const JobId& job) {
    for (const std::string& id : ids)
      if (std::ranges::find(use.devices, id, &NodeUse::Device::id) == use.devices.end())
        use.devices.push_back({id, job});
  };
  static const std::map<JobId, HoldLedger::Hold> kNone;
  const auto& holds = node.holds == nullptr ? kNone : *node.holds;
  HeldResources shared, lent;
  for (const auto& [job, hold] : holds) {
    const HeldResources& held = hold.resources;
    add(hold.leaving, job);
    if (held.use == HoldUse::kShared) {
      shared.cpus = std::max(shared.cpus, held.cpus);
      shared.memory_bytes = std::max(shared.memory_bytes, held.memory_bytes);
      continue;
    }
    add(held.devices, job);
    const bool is_lent = held.use == HoldUse::kLent;
    (is_lent ? lent.cpus : use.cpus) += held.cpus;
    (is_lent ? lent.memory_bytes : use.memory_bytes) += held.memory_bytes;
  }
  use.cpus += std::max(shared.cpus, lent.cpus);
  use.memory_bytes += std::max(shared.memory_bytes, lent.memory_bytes);
  for (const LeakedSlot& leaked : node.record->leaked) add(leaked.devices, leaked.job);
  for (const auto& [job, hold] : holds)
    if (hold.resources.use == HoldUse::kShared) add(hold.resources.devices, job);
  return use;
}

ArchivedJobView::ArchivedJobView(const ArchivedRecords& records) {
  const JobRecord& job = records.job;
  ledger_.Begin(job.usage, job.step, {}, job.usage.until_unix_ms);
  view_.record = &job;
  view_.attempts = &records.attempts;
  view_.checkpoints = &records.checkpoints;
  view_.progress = &progress_;
  view_.ledger = &ledger_;
  view_.archived = true;
}

const std::vector<RankRecord>& JobView::ranks() const {
  static const std::vector<RankRecord> kNone;
  return attempts == nullptr || attempts->empty() ? kNone : attempts->back().ranks;
}

int JobView::world_size() const {
  return ranks().empty() ? record->world_size : static_cast<int>(ranks().size());
}

}  // namespace muster
