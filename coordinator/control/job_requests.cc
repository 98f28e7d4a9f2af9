#include "coordinator/control/job_requests.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "common/base/text.h"
#include "common/base/wall_time.h"
#include "common/job_spec/job_times.h"
#include "common/job_spec/parse.h"
#include "coordinator/access/access.h"
#include "coordinator/control/answer.h"
#include "coordinator/control/checkpoints.h"
#include "coordinator/control/job_facts.h"
#include "coordinator/control/node_parts.h"
#include "coordinator/control/placement.h"
#include "coordinator/control/queries.h"
#include "coordinator/control/queues.h"
#include "coordinator/control/scheduler_snapshot.h"
#include "coordinator/control/secrets.h"
#include "coordinator/control/shares.h"
#include "coordinator/control/stopping.h"
#include "coordinator/control/time_booking.h"
#include "coordinator/control/words.h"
#include "coordinator/scheduler/explanation.h"
#include "coordinator/scheduler/scheduler.h"

namespace muster::control {
namespace {

// Limit of jobs that are not over. A client that submits in a loop must not fill the disk.
constexpr std::size_t kMaxLiveJobs = 100'000;
constexpr std::size_t kMaxSpecBytes = 1 << 20;
constexpr std::size_t kMaxKeyBytes = 256;

// A job that is over, or about to end, is not changed any more.
Status CheckGoesOn(const JobEntry& job, const std::string& what) {
  if (job.over()) {
    const std::string end = job.record.state == JobState::kCancelled
                                ? "been cancelled"
                                : std::string(Name(job.record.state));
    return FailedPrecondition(NameOf(job) + " has already " + end + "; there is nothing to " +
                              what);
  }
  const StopKind stop = job.record.stop;
  if (stop == StopKind::kCancel || stop == StopKind::kTimeLimit) {
    return FailedPrecondition(NameOf(job) + " is being ended (" + job.record.reason +
                              "); it is too late to " + what + " it");
  }
  return OkStatus();
}

void RecordHeld(Transaction& tx, const JobEntry& job) {
  const std::string& why = job.record.hold_reason;
  tx.RecordEvent(
      job, {"held", Severity::kInfo, why.empty() ? "held until it is released" : "held: " + why});
}

// Without users all may see every job.
JobFilter JobsSeenBy(const State& state, const Actor& actor) {
  if (!state.users.in_force()) return {};
  return [&state, actor](const JobRecord& job) {
    return Access(state.users, state.queues).MaySee(actor, {job.owner, QueueName(job.queue)});
  };
}

Status CheckOutputFree(const State& state, const std::string& output_dir, const JobFilter& sees) {
  const auto owner = state.output_owners.find(output_dir);
  if (owner == state.output_owners.end()) return OkStatus();
  const JobEntry& other = state.jobs.at(owner->second.job);
  if (other.over()) return OkStatus();
  const JobRecord& job = other.record;
  if (sees && !sees(job))
    return AlreadyExists("another job writes to " + output_dir +
                         "; choose another output directory");
  return AlreadyExists("job " + job.id.value + " (" + job.name + ", " +
                       std::string(Name(job.state)) + ") writes to " + output_dir +
                       "; choose another output directory, or cancel that job first");
}

// What a declaration does not mention may be anything.
NodeDemand AsFarAsDeclared(NodeDemand demand, const NodeInventory& declared) {
  demand.topology = {};
  if (declared.labels.empty()) demand.labels.clear();
  for (const Device& device : declared.devices) {
    if (device.kind.empty()) demand.devices.kinds.clear();
    if (device.memory_bytes == 0) demand.devices.min_memory_bytes = 0;
  }
  return demand;
}

// What no node could ever hold is refused, instead of waiting for ever. A node that has never been
// here may come: with none known, or where a pool brings nodes of an unknown kind, the job waits.
Status CheckSomeNodeCanHold(const State& state, const JobSpec& spec) {
  GangRequest request{.demand = spec.resources.per_node()};
  for (const std::string& name : spec.resources.exclude) request.exclude.push_back({name});
  std::optional<NearestMiss> nearest;
  const auto consider = [&](const NodeCapacity& node) {
    std::optional<NearestMiss> miss = MissOf(request, node);
    if (miss && (!nearest || IsNearer(*miss, *nearest))) nearest = miss;
    return !miss.has_value();
  };
  for (const auto& [name, node] : state.nodes)
    if (IsUnknown(node.record.inventory) || consider(IntactOf(node))) return OkStatus();
  int nodes = static_cast<int>(state.nodes.size());
  if (state.pool) {
    const std::optional<NodeInventory>& declared = state.pool->node;
    if (!declared) return OkStatus();
    request.demand = AsFarAsDeclared(request.demand, *declared);
    if (consider(WholeOf(*declared, state.pool->slots))) return OkStatus();
    ++nodes;
  }
  if (!nearest) return OkStatus();
  return ResourceExhausted(MissText(*nearest, nodes) +
                           "\n  next: muster nodes -o wide shows what each has; change resources");
}

// A later one would come sooner than it says: the clock of the loop ends before it.
Status CheckBegin(std::int64_t unix_ms, const Now& now) {
  if (unix_ms >= 0 && unix_ms - now.unix_ms <= kMaxSpanSeconds * 1000) return OkStatus();
  return InvalidArgument("begin: " + UtcTime(unix_ms) + " is more than " +
                         SpanText(kMaxSpanSeconds) +
                         " ahead, or before 1970; give another time, or leave it out and keep the "
                         "job back by hold: true or 'muster hold', until 'muster release'");
}

// What only the CLI's begin may be: a time that a repeated submit means too.
Result<std::int64_t> BeginOf(const JobSpec& spec, const Now& now) {
  if (spec.begin.empty()) return 0;
  if (const std::optional<std::int64_t> begin = ParseRfc3339(spec.begin)) {
    MUSTER_RETURN_IF_ERROR(CheckBegin(*begin, now));
    return *begin;
  }
  return InvalidArgument("begin: '" + spec.begin +
                         "' has no date or no zone; submit with the muster command, which resolves "
                         "it");
}

Status CheckClass(const State& state, const std::string& priority_class) {
  if (state.queues.FindClass(ClassName(priority_class)) != nullptr) return OkStatus();
  return InvalidArgument("class: " + UnknownClass(state.queues, priority_class));
}

// A queue that takes jobs.
Result<QueueSpec> FindQueue(const State& state, const std::string& name) {
  const int found = state.queues.Find(QueueName(name));
  if (found < 0)
    return InvalidArgument("queue: " + UnknownQueue(state.queues, name) +
                           "\n  next: muster queues show");
  const QueueSpec& queue = state.queues.queues[static_cast<std::size_t>(found)];
  if (queue.leaf) return queue;
  return InvalidArgument("queue: " + name +
                         " has queues of its own and takes no jobs\n  next: muster queues show");
}

Status CheckTimeLimit(const QueueSpec& queue, std::int64_t seconds) {
  if (queue.time_limit_seconds == 0 || seconds <= queue.time_limit_seconds) return OkStatus();
  return InvalidArgument("resources.time_limit: queue " + queue.name + " allows " +
                         SpanText(queue.time_limit_seconds) + ", and this is " + SpanText(seconds));
}

// That of a job which names `seconds`; 0: none.
std::int64_t TimeLimitIn(const QueueSpec& queue, std::int64_t seconds) {
  return seconds == 0 ? queue.time_limit_seconds : seconds;
}

// What a ceiling could never hold would wait for ever.
Status CheckCeilings(const State& state, const QueueSpec& queue, const JobSpec& spec) {
  const QueueTree& tree = state.queues;
  const Amounts gang = AmountsOf(spec.resources.per_node(), spec.resources.nodes);
  const Amounts& of_user = queue.per_user.ceiling;
  const bool above = gang.gpus > of_user.gpus || gang.slots > of_user.slots;
  if (above && state.users.in_force()) {
    Amounts most = of_user;
    if (most.gpus == kNoCeiling || gang.gpus == 0) most.gpus = 0;
    if (most.slots == kNoCeiling) most.slots = 0;
    return ResourceExhausted("the job needs " + AmountsText(gang) + ", more than the " +
                             AmountsText(most) + " that one user may have in queue " + queue.name +
                             "\n  next: muster queues show -o wide; name another queue, or fewer "
                             "nodes");
  }
  for (const QueueSpec* at = &queue; at != nullptr;
       at = at->parent < 0 ? nullptr : &tree.queues[static_cast<std::size_t>(at->parent)]) {
    if (gang.gpus <= at->ceiling.gpus && gang.slots <= at->ceiling.slots) continue;
    return ResourceExhausted("the job needs " + AmountsText(gang) + ", more than the ceiling of " +
                             "queue " + at->name + " allows\n  next: muster queues show; name " +
                             "another queue, or fewer nodes");
  }
  return OkStatus();
}

// A user has fewer jobs that wait in the queue than one user may.
Status CheckQueued(const State& state, const QueueSpec& queue, const std::string& owner) {
  const int most = queue.per_user.queued;
  if (most == 0 || !state.users.in_force()) return OkStatus();
  const int waiting = WaitingOf(state, queue.name, owner);
  if (waiting < most) return OkStatus();
  return ResourceExhausted(
      owner + " has " + std::to_string(waiting) +
      (waiting == 1 ? " job that waits" : " jobs that wait") + " in queue " + queue.name +
      ", and one user may have " + std::to_string(most) +
      " there\n  next: submit again when one has started; muster get --owner " + owner +
      " --queue " + queue.name + " lists them");
}

Result<JobEntry*> AcceptJob(Transaction& tx, const SubmitRequested& request) {
  if (request.spec_yaml.size() > kMaxSpecBytes || request.key.size() > kMaxKeyBytes) {
    return InvalidArgument("the job file may have 1 MiB and the key 256 bytes; this is more");
  }
  MUSTER_ASSIGN_OR_RETURN(const JobSpec spec, request.spec);
  MUSTER_ASSIGN_OR_RETURN(JobEntry entry,
                          NewJob(tx.state, tx.options, tx.now, spec, request.new_id,
                                 request.actor.user(), JobsSeenBy(tx.state, request.actor)));
  MUSTER_RETURN_IF_ERROR(CheckSecrets(tx.state, request.actor.user(), spec));
  if (request.check_index && *request.check_index != IndexOf(tx.state, tx.now)) {
    return FailedPrecondition(
        "nodes, queues or jobs have changed since the plan with index " +
        std::to_string(*request.check_index) +
        ": nothing was submitted\n  next: muster plan, and submit with the index that it prints");
  }
  if (request.new_id.empty() || tx.state.jobs.contains(request.new_id) ||
      tx.state.archive.contains(request.new_id)) {
    return Unavailable("the id drawn for the job is taken; submit again");
  }

  JobEntry& job = tx.state.jobs[request.new_id] = std::move(entry);
  job.record.key = request.key;
  job.record.submitter = request.actor.name;
  job.record.spec_yaml = request.spec_yaml;
  tx.state.next_order++;
  tx.state.order[job.record.submit_order] = job.record.id;
  tx.state.live.emplace(job.record.id, &job);
  AddShare(tx.state, job);
  RegisterOutput(tx, job.record);
  if (!request.key.empty()) tx.state.keys[SubmitKey(job.record)] = job.record.id;
  job.ledger.Begin({.doing = TimeUseOf(job)}, 0, tx.now.mono, tx.now.unix_ms);
  tx.Mark(job);
  tx.RecordEvent(
      job, {"submitted", Severity::kInfo,
            "job " + job.record.name + " submitted: " + std::to_string(job.spec.resources.nodes) +
                " x " + std::to_string(job.spec.resources.ranks_per_node) + " ranks"});
  if (job.record.held) RecordHeld(tx, job);
  return &job;
}

Status KeyIsTaken(const SubmitRequested& request, const std::string& owner) {
  return AlreadyExists("key '" + request.key + "' belongs to " + owner +
                       ", which was submitted with another job file; use another key");
}

void Suspend(Transaction& tx, JobEntry& job, const SuspendRequested& request) {
  JobRecord& record = job.record;
  if (record.state == JobState::kSuspended) return;
  const std::int64_t by =
      tx.now.unix_ms +
      std::max<std::int64_t>(1, static_cast<std::int64_t>(request.by_seconds * 1000));
  const bool sooner =
      request.by_seconds > 0 && (record.stop_by_unix_ms == 0 || by < record.stop_by_unix_ms);
  if (sooner) {
    record.stop_by_unix_ms = by;
    tx.Mark(job);
  }
  if (record.stop != StopKind::kSuspend) {
    const std::string why =
        request.reason.empty() ? "requested " + ByWhom(tx, request.actor) : request.reason;
    return StopJob(tx, job, StopKind::kSuspend, "suspended: " + CutText(why, kMaxReasonBytes));
  }
  // It is already being suspended, and has less time than was planned.
  if (!sooner || !job.gang) return;
  const TimePoint deadline = tx.now.mono + FromSeconds(request.by_seconds);
  if (Running* running = In<Running>(*job.gang); running != nullptr && running->stop) {
    ShortenStop(*running->stop, deadline);
  } else if (Aborting* aborting = In<Aborting>(*job.gang); aborting && aborting->save_deadline) {
    aborting->save_deadline = std::min(*aborting->save_deadline, deadline);
  }
}

void Resume(Transaction& tx, JobEntry& job) {
  JobRecord& record = job.record;
  const std::int64_t aside = EndSetAside(job, tx.now);
  record.reason.clear();
  job.wait_recorded = false;
  job.begin_at = BeginAt(job, tx.now);
  tx.Move(job, JobEvent::kResume);
  tx.RecordEvent(job,
                 {"resuming", Severity::kInfo,
                  "to go on, after it was suspended for " + SecondsText(double(aside) / 1000)});
  // Where passes are cheap the placement is decided in the same step: one commit covers both.
  ScheduleSoon(tx, record.id);
}

Status CheckRange(const char* what, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return OkStatus();
  return InvalidArgument(std::string(what) + " is from 0 to " + std::to_string(most) + ", got " +
                         std::to_string(value));
}

std::string BeginText(std::int64_t unix_ms) { return unix_ms == 0 ? "none" : UtcTime(unix_ms); }

// The record as it would be; it is not changed.
Result<JobRecord> Updated(const Transaction& tx, const JobEntry& job,
                          const UpdateRequested& request) {
  JobRecord record = job.record;
  record.queue = request.queue.value_or(record.queue);
  record.priority_class = request.priority_class.value_or(record.priority_class);
  record.priority = request.priority.value_or(record.priority);
  record.time_limit_seconds = request.time_limit_seconds.value_or(record.time_limit_seconds);
  record.begin_unix_ms = request.begin_unix_ms.value_or(record.begin_unix_ms);
  if (request.queue || request.time_limit_seconds) {
    MUSTER_ASSIGN_OR_RETURN(const QueueSpec queue, FindQueue(tx.state, record.queue));
    MUSTER_RETURN_IF_ERROR(CheckTimeLimit(queue, record.time_limit_seconds));
    MUSTER_RETURN_IF_ERROR(CheckCeilings(tx.state, queue, job.spec));
    if (queue.name != QueueOf(job) && job.pending())
      MUSTER_RETURN_IF_ERROR(CheckQueued(tx.state, queue, job.record.owner));
    record.time_limit_seconds = TimeLimitIn(queue, record.time_limit_seconds);
  }
  if (request.priority_class) MUSTER_RETURN_IF_ERROR(CheckClass(tx.state, record.priority_class));
  MUSTER_RETURN_IF_ERROR(CheckRange("priority", record.priority, kMaxPriority));
  MUSTER_RETURN_IF_ERROR(
      CheckRange("time_limit_seconds", record.time_limit_seconds, kMaxSpanSeconds));
  if (request.begin_unix_ms) MUSTER_RETURN_IF_ERROR(CheckBegin(record.begin_unix_ms, tx.now));
  const bool waits = record.state == JobState::kQueued || record.state == JobState::kSuspended;
  if (record.begin_unix_ms != job.record.begin_unix_ms && !waits) {
    return FailedPrecondition(NameOf(job) + " is " + std::string(Name(record.state)) +
                              " and has begun; only a job that is queued or suspended gets another "
                              "begin; 'muster suspend " +
                              record.id.value + "' saves and stops it");
  }
  return record;
}

// "priority 50 -> 80, queue default -> team"; empty: they are the same.
std::string ChangeText(const JobRecord& from, const JobRecord& to) {
  std::string text;
  const auto add = [&text](const char* what, const auto& before, const auto& after, auto&& shown) {
    if (before == after) return;
    text += (text.empty() ? "" : ", ") + std::string(what) + " " + shown(before) + " -> " +
            shown(after);
  };
  const auto as_it_is = [](const std::string& name) { return name; };
  const auto number = [](int value) { return std::to_string(value); };
  add("queue", QueueName(from.queue), QueueName(to.queue), as_it_is);
  add("class", ClassName(from.priority_class), ClassName(to.priority_class), as_it_is);
  add("priority", from.priority, to.priority, number);
  add("time limit", from.time_limit_seconds, to.time_limit_seconds, LimitText);
  add("begin", from.begin_unix_ms, to.begin_unix_ms, BeginText);
  return text;
}

void PlanTimeLimit(JobEntry& job, const Now& now) {
  job.time_limit_at = TimeLimitAt(job, now);
  PlanEnd(job, now);
}

// Starts that other jobs were promised and would have later if it had that time limit. What waits
// without a promise changes none.
std::vector<Delay> DelaysByLimit(const Transaction& tx, JobEntry& job, std::int64_t limit_seconds) {
  const auto is_longer = [](std::int64_t limit, std::int64_t than) {
    return than != 0 && (limit == 0 || limit > than);
  };
  if (!is_longer(limit_seconds, job.record.time_limit_seconds) || job.at_rest() ||
      job.record.stop != StopKind::kNone)
    return {};
  const SchedulerSnapshot before = SnapshotOfArrived(tx.state, tx.now);
  const auto limit_at = job.time_limit_at;
  const auto ends_at = job.ends_at;
  std::swap(job.record.time_limit_seconds, limit_seconds);
  PlanTimeLimit(job, tx.now);
  const SchedulerSnapshot after = SnapshotOfArrived(tx.state, tx.now);
  std::swap(job.record.time_limit_seconds, limit_seconds);
  job.time_limit_at = limit_at;
  job.ends_at = ends_at;
  return DelaysBetween(before, after, job.record.id);
}

// "job 3f2 (wide): from 2026-11-27 16:33:33 UTC to 2026-11-27 18:35:03 UTC and 2 others". Only a
// job that the actor may see has its name there.
std::string DelaysText(const Transaction& tx, const Actor& actor,
                       const std::vector<Delay>& delays) {
  const auto time = [&tx](TimePoint at) {
    return at == kNever ? "no planned start" : UtcTime(UnixMillisOf(tx.now, at));
  };
  const JobFilter sees = JobsSeenBy(tx.state, actor);
  const Delay& first = delays.front();
  const JobEntry& job = tx.job(first.job);
  std::string text = (sees && !sees(job.record) ? "another job" : NameOf(job)) + " from " +
                     time(first.promised) + " to " + time(first.later);
  if (const std::size_t more = delays.size() - 1; more > 0)
    text += " and " + std::to_string(more) + (more == 1 ? " other job" : " other jobs");
  return text;
}

Result<UpdateAccepted> Update(Transaction& tx, JobEntry& job, const UpdateRequested& request) {
  MUSTER_ASSIGN_OR_RETURN(JobRecord updated, Updated(tx, job, request));
  std::string changed = ChangeText(job.record, updated);
  if (changed.empty()) return UpdateAccepted{job.record.id, job.record.state, ""};
  const std::vector<Delay> delays = DelaysByLimit(tx, job, updated.time_limit_seconds);
  if (!delays.empty() && !request.force) {
    return FailedPrecondition(
        "a time limit of " + LimitText(updated.time_limit_seconds) + " for " + NameOf(job) +
        " would delay the promised start of " + DelaysText(tx, request.actor, delays) +
        ": nothing was changed\n  next: the same command with --force, or a shorter limit");
  }
  if (!delays.empty()) changed += "; it delays " + DelaysText(tx, request.actor, delays);
  for (const Delay& delay : delays)
    tx.state.forced_delays[delay.job] = "the time limit of " + NameOf(job) + " was raised by force";
  tx.Mark(job);
  if (updated.queue != job.record.queue) {
    AccrueTime(tx, job);  // to the queue that it leaves
    updated.usage = job.record.usage;
  }
  job.record = std::move(updated);
  AddShare(tx.state, job);
  tx.RecordEvent(job, {"updated", Severity::kInfo, "updated: " + changed});
  tx.state.reschedule = true;
  if (job.record.state == JobState::kQueued) job.begin_at = BeginAt(job, tx.now);
  if (IsKeptBack(job)) job.wait.reset();
  if (!job.at_rest() && job.record.stop == StopKind::kNone) {
    PlanTimeLimit(job, tx.now);
    StopIfOutOfTime(tx, job);
  }
  return UpdateAccepted{job.record.id, job.record.state, changed};
}

Status CheckMayBeHeld(const JobEntry& job) {
  const JobState state = job.record.state;
  if (state == JobState::kQueued || state == JobState::kSuspended) return OkStatus();
  return FailedPrecondition(NameOf(job) + " is " + std::string(Name(state)) +
                            ", and only a job that waits in the queue is held; 'muster suspend " +
                            job.record.id.value + "' saves and stops it");
}

}  // namespace

Result<JobEntry> NewJob(const State& state, const ControllerOptions& options, const Now& now,
                        const JobSpec& spec, const JobId& id, const std::string& owner,
                        const JobFilter& sees) {
  if (options.check_job) MUSTER_RETURN_IF_ERROR(options.check_job(spec));
  const std::string output_dir =
      std::filesystem::path(OutputDirectory(spec, id)).lexically_normal().string();
  if (!output_dir.starts_with('/')) {
    return InvalidArgument("workdir: '" + spec.workdir +
                           "' is not absolute; submit with the muster command, which makes it so");
  }
  MUSTER_RETURN_IF_ERROR(CheckClass(state, spec.priority_class));
  MUSTER_ASSIGN_OR_RETURN(const QueueSpec queue, FindQueue(state, spec.queue));
  MUSTER_RETURN_IF_ERROR(CheckTimeLimit(queue, spec.resources.time_limit_seconds));
  MUSTER_RETURN_IF_ERROR(CheckCeilings(state, queue, spec));
  MUSTER_RETURN_IF_ERROR(CheckQueued(state, queue, owner));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t begin_unix_ms, BeginOf(spec, now));
  MUSTER_RETURN_IF_ERROR(CheckOutputFree(state, output_dir, sees));
  MUSTER_RETURN_IF_ERROR(CheckSomeNodeCanHold(state, spec));
  if (state.live.size() >= kMaxLiveJobs) {
    return ResourceExhausted(std::to_string(kMaxLiveJobs) +
                             " jobs wait or run already, the most that a coordinator takes; cancel "
                             "some, or submit again when one has ended");
  }
  JobEntry job;
  job.record.id = id;
  job.record.name = spec.name;
  job.record.owner = owner;
  job.record.output_dir = output_dir;
  job.record.priority = spec.priority.value_or(queue.default_priority);
  job.record.queue = spec.queue;
  job.record.priority_class = spec.priority_class;
  job.record.held = spec.hold;
  job.record.begin_unix_ms = begin_unix_ms;
  job.record.time_limit_seconds = TimeLimitIn(queue, spec.resources.time_limit_seconds);
  job.record.submit_order = state.next_order;
  job.record.world_size = spec.world_size();
  job.record.max_steps = spec.train ? spec.train->schedule.max_steps : 0;
  job.record.submitted_unix_ms = now.unix_ms;
  job.begin_at = BeginAt(job, now);
  job.spec = spec;
  return job;
}

void On(Transaction& tx, const SubmitRequested& request) {
  Answer(tx, request, [&]() -> Result<SubmitAccepted> {
    const std::string key = SubmitKey(request.actor.user(), request.key);
    const auto known = key.empty() ? tx.state.keys.end() : tx.state.keys.find(key);
    if (known != tx.state.keys.end()) {
      const JobEntry& job = std::as_const(tx).job(known->second);
      if (job.record.spec_yaml != request.spec_yaml) return KeyIsTaken(request, NameOf(job));
      return SubmitAccepted{job.record.id, job.record.name, job.record.state, true};
    }
    if (const auto* archived = tx.state.archive.FindKey(key)) {
      const auto& [id, job] = *archived;
      if (job.spec_print != TextPrint(request.spec_yaml))
        return KeyIsTaken(request, "job " + id.value + " (archived)");
      // The name of the same job file is the job's.
      return SubmitAccepted{id, request.spec.ok() ? request.spec->name : "", job.state, true};
    }
    MUSTER_ASSIGN_OR_RETURN(JobEntry * job, AcceptJob(tx, request));
    // Where passes are cheap the placement is decided in the same step: one commit covers both.
    ScheduleSoon(tx, job->record.id);
    return SubmitAccepted{job->record.id, job->record.name, job->record.state, false};
  });
}

void On(Transaction& tx, const CancelRequested& request) {
  Answer(tx, request, [&]() -> Result<CancelAccepted> {
    const Archive::Jobs::value_type* archived = FindArchived(tx.state, request.job);
    if (archived != nullptr && archived->second.state == JobState::kCancelled)
      return CancelAccepted{archived->first, JobState::kCancelled};
    MUSTER_ASSIGN_OR_RETURN(const JobView found, FindJob(tx.state, request.job));
    JobEntry& job = tx.job(found.record->id);
    if (job.over() && job.record.state != JobState::kCancelled) {
      return FailedPrecondition(NameOf(job) + " has already " +
                                (job.record.state == JobState::kFailed ? "failed" : "succeeded") +
                                "; there is nothing to cancel");
    }
    if (!job.over()) {
      StopJob(tx, job, StopKind::kCancel,
              request.reason.empty() ? "cancelled " + ByWhom(tx, request.actor)
                                     : "cancelled: " + CutText(request.reason, kMaxReasonBytes));
    }
    return CancelAccepted{job.record.id, job.record.state};
  });
}

void On(Transaction& tx, const SuspendRequested& request) {
  Answer(tx, request, [&]() -> Result<SuspendAccepted> {
    MUSTER_ASSIGN_OR_RETURN(const JobView found, FindJob(tx.state, request.job));
    MUSTER_RETURN_IF_ERROR(CheckBySeconds(request.by_seconds));
    JobEntry& job = tx.job(found.record->id);
    MUSTER_RETURN_IF_ERROR(CheckGoesOn(job, "suspend"));
    Suspend(tx, job, request);
    return SuspendAccepted{job.record.id, job.record.state};
  });
}

void On(Transaction& tx, const ResumeRequested& request) {
  Answer(tx, request, [&]() -> Result<ResumeAccepted> {
    MUSTER_ASSIGN_OR_RETURN(const JobView found, FindJob(tx.state, request.job));
    JobEntry& job = tx.job(found.record->id);
    MUSTER_RETURN_IF_ERROR(CheckGoesOn(job, "resume"));
    if (job.record.stop == StopKind::kSuspend) {
      return FailedPrecondition(NameOf(job) + " is still being suspended; 'muster suspend " +
                                job.record.id.value + " --wait' returns when it is");
    }
    // One that is already running again was resumed before, by a call whose answer was lost.
    if (job.record.state == JobState::kSuspended) Resume(tx, job);
    return ResumeAccepted{job.record.id, job.record.state};
  });
}

void On(Transaction& tx, const UpdateRequested& request) {
  Answer(tx, request, [&]() -> Result<UpdateAccepted> {
    MUSTER_ASSIGN_OR_RETURN(const JobView found, FindJob(tx.state, request.job));
    JobEntry& job = tx.job(found.record->id);
    MUSTER_RETURN_IF_ERROR(CheckGoesOn(job, "update"));
    return Update(tx, job, request);
  });
}

void On(Transaction& tx, const HoldRequested& request) {
  Answer(tx, request, [&]() -> Result<HoldAccepted> {
    MUSTER_ASSIGN_OR_RETURN(const JobView found, FindJob(tx.state, request.job));
    JobEntry& job = tx.job(found.record->id);
    MUSTER_RETURN_IF_ERROR(CheckGoesOn(job, "hold"));
    MUSTER_RETURN_IF_ERROR(CheckMayBeHeld(job));
    const std::string reason = CutText(request.reason, kMaxReasonBytes);
    if (!job.record.held || job.record.hold_reason != reason) {
      job.record.held = true;
      job.record.hold_reason = reason;
      job.wait.reset();
      tx.Mark(job);
      RecordHeld(tx, job);
      tx.state.reschedule = true;  // what it waited for is others'
    }
    return HoldAccepted{job.record.id, job.record.state};
  });
}

void On(Transaction& tx, const ReleaseRequested& request) {
  Answer(tx, request, [&]() -> Result<ReleaseAccepted> {
    MUSTER_ASSIGN_OR_RETURN(const JobView found, FindJob(tx.state, request.job));
    JobEntry& job = tx.job(found.record->id);
    MUSTER_RETURN_IF_ERROR(CheckGoesOn(job, "release"));
    if (job.record.held) {
      job.record.held = false;
      job.record.hold_reason.clear();
      job.wait_recorded = false;
      tx.Mark(job);
      tx.RecordEvent(job, {"released", Severity::kInfo, "released; it waits for a gang"});
      // Where passes are cheap the placement is decided in the same step: one commit covers both.
      ScheduleSoon(tx, job.record.id);
    }
    return ReleaseAccepted{job.record.id, job.record.state};
  });
}

}  // namespace muster::control
