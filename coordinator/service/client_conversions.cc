#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "common/job_spec/job_spec.h"
#include "common/wire/codec.h"
#include "common/wire/inventory_codec.h"
#include "coordinator/detect/straggler_detector.h"
#include "coordinator/queues/queue_file.h"
#include "coordinator/service/conversions.h"

namespace muster {
namespace {

template <typename Proto, typename Domain>
Proto SameNumber(Domain value) {
  return static_cast<Proto>(static_cast<int>(value));
}

// The numbers are equal by contract (lifecycle.h); the ends are checked.
static_assert(static_cast<int>(JobState::kQueued) == v1::JOB_STATE_QUEUED);
static_assert(static_cast<int>(JobState::kCancelled) == v1::JOB_STATE_CANCELLED);
static_assert(static_cast<int>(NodeState::kJoining) == v1::NODE_STATE_JOINING);
static_assert(static_cast<int>(NodeState::kQuarantined) == v1::NODE_STATE_QUARANTINED);
static_assert(static_cast<int>(RankState::kPrepared) == v1::RANK_STATE_PREPARED);
static_assert(static_cast<int>(RankState::kParked) == v1::RANK_STATE_PARKED);

void FillRank(const RankRecord& rank, v1::RankStatus& out) {
  out.set_rank(rank.rank);
  out.set_node(rank.node.value);
  out.set_pid(rank.pid);
  out.set_state(SameNumber<v1::RankState>(rank.state));
  if (rank.state != RankState::kExited) return;
  out.mutable_exit()->set_exit_code(rank.end.exit.exit_code);
  out.mutable_exit()->set_signal(rank.end.exit.signal);
}

void FillSlowRank(const Straggler& straggler, v1::SlowRank& out) {
  out.set_rank(straggler.rank);
  out.set_node(straggler.node.value);
  out.set_seconds(straggler.seconds);
  out.set_others_seconds(straggler.others_seconds);
  out.set_phase(straggler.phase);
}

// Limit for notes, facts and log lines of all attempts together; the oldest are dropped.
constexpr std::size_t kAttemptTextBytes = 4 << 20;

std::size_t TextBytes(const AttemptRecord& attempt) {
  std::size_t bytes = 0;
  for (const std::string& note : attempt.notes) bytes += note.size();
  for (const std::string& line : attempt.log_tail) bytes += line.size();
  for (const std::string& fact : attempt.card.facts) bytes += fact.size();
  return bytes;
}

void FillText(const AttemptRecord& attempt, v1::AttemptInfo& out) {
  for (const std::string& fact : attempt.card.facts) out.mutable_card()->add_facts(fact);
  for (const std::string& note : attempt.notes) out.add_notes(note);
  for (const std::string& line : attempt.log_tail) out.add_log_tail(line);
}

// Its facts are part of the attempt's text.
void FillCard(const CauseCard& card, v1::CauseCard& out) {
  out.set_what(card.what);
  out.set_step(card.step);
  out.set_phase(card.phase);
  out.set_micro_batch(card.micro_batch);
  out.set_last_collective(card.last_collective);
  out.set_advice(card.advice);
}

void FillAttempt(const AttemptRecord& attempt, v1::AttemptInfo& out) {
  out.set_generation(attempt.generation);
  out.set_started_unix_ms(attempt.started_unix_ms);
  out.set_ended_unix_ms(attempt.ended_unix_ms);
  out.set_state(std::string(Name(attempt.state)));
  out.set_cause(attempt.cause);
  out.set_failed_rank(attempt.failed_rank);
  out.set_failed_node(attempt.failed_node.value);
  out.set_resumed_step(attempt.resumed_step);
  out.set_last_step(attempt.last_step);
  out.set_lost_steps(attempt.lost_steps);
  v1::StageSeconds& seconds = *out.mutable_seconds();
  seconds.set_detect(attempt.seconds.detect);
  seconds.set_abort(attempt.seconds.abort);
  seconds.set_reform(attempt.seconds.reform);
  seconds.set_load(attempt.seconds.load);
  seconds.set_first_step(attempt.seconds.first_step);
  out.set_tier(std::string(Name(attempt.tier)));
  out.set_world_size(static_cast<std::int32_t>(attempt.ranks.size()));
  for (const NodeName& node : attempt.nodes) out.add_nodes(node.value);
  for (const NodeName& node : attempt.spares) out.add_spares(node.value);
  for (const NodeName& node : attempt.lent) out.add_lent(node.value);
  out.set_resumed_from(attempt.resumed_from);
  if (attempt.cause_kind == CauseKind::kNone) return;
  out.set_cause_kind(std::string(Name(attempt.cause_kind)));
  FillCard(attempt.card, *out.mutable_card());
}

void FillAttempts(const std::vector<AttemptRecord>& attempts, v1::Job& out) {
  for (const AttemptRecord& attempt : attempts) FillAttempt(attempt, *out.add_attempts());
  std::size_t bytes = 0;
  for (int i = out.attempts_size() - 1; i >= 0; --i) {
    const AttemptRecord& attempt = attempts[static_cast<std::size_t>(i)];
    bytes += TextBytes(attempt);
    if (bytes > kAttemptTextBytes) return;
    FillText(attempt, *out.mutable_attempts(i));
  }
}

void FillDetail(const JobView& view, v1::Job& out) {
  for (const RankRecord& rank : view.ranks()) FillRank(rank, *out.add_ranks());
  FillAttempts(*view.attempts, out);
  for (const CheckpointRecord& checkpoint : *view.checkpoints) {
    // A checkpoint that is being removed is hidden from all clients.
    if (checkpoint.state == CheckpointState::kCommitted) {
      *out.add_checkpoints() = ToProto(checkpoint);
    }
  }
  for (const RankProgress& progress : *view.progress) *out.add_progress() = ToProto(progress);
  out.set_spec_yaml(view.record->spec_yaml);
}

void FillQueue(const QueuesView& view, std::size_t place, v1::Queue& out) {
  const QueueSpec& spec = view.tree->queues[place];
  out.set_name(spec.name);
  if (spec.parent >= 0)
    out.set_parent(view.tree->queues[static_cast<std::size_t>(spec.parent)].name);
  out.set_leaf(spec.leaf);
  *out.mutable_guarantee() = ToProto(spec.guarantee);
  *out.mutable_ceiling() = CeilingToProto(spec.ceiling);
  out.set_weight(spec.weight);
  out.set_priority(spec.default_priority);
  out.set_time_limit_seconds(spec.time_limit_seconds);
  *out.mutable_per_user() = CeilingToProto(spec.per_user.ceiling);
  out.set_per_user_queued(spec.per_user.queued);
  const QueueView& has = view.queues[place];
  *out.mutable_used() = ToProto(has.used);
  out.set_running(has.running);
  out.set_waiting(has.waiting);
  out.set_share(has.share);
  out.set_usage_share(has.usage_share);
}

}  // namespace

v1::Amounts ToProto(const Amounts& amounts) {
  v1::Amounts out;
  out.set_gpus(amounts.gpus);
  out.set_slots(amounts.slots);
  out.set_jobs(amounts.jobs);
  return out;
}

v1::Ceiling CeilingToProto(const Amounts& amounts) {
  v1::Ceiling out;
  if (amounts.gpus != kNoCeiling) out.set_gpus(amounts.gpus);
  if (amounts.slots != kNoCeiling) out.set_slots(amounts.slots);
  if (amounts.jobs != 0) out.set_jobs(amounts.jobs);
  return out;
}

v1::CheckpointInfo ToProto(const CheckpointRecord& checkpoint) {
  v1::CheckpointInfo out = ToProto(InfoOf(checkpoint));
  out.set_verified_unix_ms(checkpoint.verified_unix_ms);
  out.set_refused(checkpoint.refused);
  return out;
}

v1::Goodput ToProto(const Goodput& goodput) {
  v1::Goodput out;
  for (const TimeShare& share : goodput.Shares()) {
    v1::TimeShare& state = *out.add_states();
    state.set_state(std::string(share.state));
    state.set_seconds(share.seconds);
  }
  out.set_under_way_seconds(goodput.under_way_seconds());
  out.set_ratio(goodput.ratio());
  return out;
}

v1::Job ToProto(const JobView& view, JobDetail detail, TimePoint now) {
  const JobRecord& record = *view.record;
  v1::Job out;
  out.set_id(record.id.value);
  out.set_name(record.name);
  out.set_state(SameNumber<v1::JobState>(record.state));
  out.set_reason(view.reason());
  out.set_generation(record.generation);
  out.set_step(record.step);
  out.set_max_steps(record.max_steps);
  out.set_loss(record.loss);
  out.set_tokens_per_second(view.tokens_per_second);
  out.set_eta_seconds(view.eta_seconds);
  out.set_output_dir(record.output_dir);
  out.set_priority(record.priority);
  out.set_queue(QueueName(record.queue));
  out.set_owner(record.owner);
  out.set_submitter(record.submitter);
  out.set_priority_class(ClassName(record.priority_class));
  out.set_held(record.held);
  out.set_begin_unix_ms(record.begin_unix_ms);
  out.set_promised_unix_ms(record.promise.start_unix_ms);
  out.set_time_limit_seconds(std::max<std::int64_t>(0, record.time_limit_seconds));
  out.set_submitted_unix_ms(record.submitted_unix_ms);
  out.set_started_unix_ms(record.started_unix_ms);
  out.set_ended_unix_ms(record.ended_unix_ms);
  out.set_restarts(record.restarts);
  out.set_loss_at_start(record.loss_at_start);
  out.set_checkpoint_seconds(record.checkpoint_seconds);
  *out.mutable_goodput() = ToProto(view.goodput(now));
  if (view.straggler != nullptr) FillSlowRank(*view.straggler, *out.mutable_slow_rank());
  out.set_world_size(view.world_size());
  if (detail == JobDetail::kFull) FillDetail(view, out);
  return out;
}

v1::Event ToProto(const EventRecord& event) {
  v1::Event out;
  out.set_seq(event.seq);
  out.set_unix_ms(event.unix_ms);
  out.set_job(event.job.value);
  out.set_generation(event.generation);
  out.set_kind(event.kind);
  out.set_severity(std::string(Name(event.severity)));
  out.set_message(event.message);
  return out;
}

namespace {

// Why no job gets the device.
std::string FaultOf(const NodeView& view, const std::string& device) {
  const auto& broken = view.record->broken_devices;
  const auto known = std::ranges::find(broken, device, &BrokenDevice::id);
  if (known != broken.end()) return known->reason;
  if (const auto other = view.others.find(device); other != view.others.end())
    return "node " + other->second.value + " has it";
  const bool elsewhere =
      std::ranges::any_of(view.record->notices, [&device](const NoticeRecord& notice) {
        return std::ranges::find(notice.in_use, device) != notice.in_use.end();
      });
  return elsewhere ? "in use elsewhere" : "a job has devices that the node no longer reports";
}

// Devices that no job gets have a fault, whatever the worker says of them.
void FillFaults(const NodeView& view, v1::NodeInventory* inventory) {
  for (int i = 0; i < inventory->devices_size(); ++i) {
    v1::Device& device = *inventory->mutable_devices(i);
    if ((view.allocatable >> i & 1) == 0 && device.fault().empty())
      device.set_fault(FaultOf(view, device.id()));
  }
}

void FillResources(const NodeView& view, v1::Node* out) {
  *out->mutable_inventory() = ToProto(view.record->inventory);
  FillFaults(view, out->mutable_inventory());
  const NodeUse use = UseOf(view);
  for (const NodeUse::Device& used : use.devices) {
    v1::AllocatedDevice& device = *out->add_allocated();
    device.set_id(std::string(used.id));
    device.set_job(used.job.value);
  }
  out->set_cpus_used(use.cpus);
  out->set_memory_bytes_used(use.memory_bytes);
}

}  // namespace

v1::Node ToProto(const NodeView& view) {
  const NodeRecord& record = *view.record;
  v1::Node out;
  out.set_name(record.name.value);
  out.set_state(SameNumber<v1::NodeState>(record.state));
  out.set_address(record.address);
  out.set_slots(record.slots);
  out.set_slots_used(view.slots_used);
  out.set_pid(record.pid);
  out.set_version(record.version);
  out.set_reason(record.ShownReason());
  out.set_last_seen_unix_ms(record.last_seen_unix_ms);
  out.set_failure_domain(record.domain());
  for (const NoticeRecord& notice : record.notices) out.add_notices(notice.Text());
  out.set_drain_by_unix_ms(record.drain_by_unix_ms);
  out.set_pilot(record.pilot);
  for (const std::string& line : record.report) out.add_report(line);
  if (view.versions != nullptr)
    for (const NamedVersions& row : *view.versions) *out.add_versions() = ToProto(row);
  FillResources(view, &out);
  return out;
}

namespace {

template <typename Grants>
void FillRoles(const UserSpec& user, Grants* grants) {
  const auto add = [grants](UserRole role, const std::string& queue) {
    v1::RoleGrant& grant = *grants->Add();
    grant.set_role(std::string(Name(role)));
    grant.set_queue(queue);
  };
  if (user.cluster != UserRole::kNone) add(user.cluster, "");
  for (const auto& [queue, role] : user.queues) add(role, queue);
}

}  // namespace

v1::ShowUsersResponse ToProto(const UsersView& view) {
  v1::ShowUsersResponse out;
  out.set_version(view.users->version);
  out.set_yaml(*view.yaml);
  for (const auto& [name, user] : view.users->users) {
    v1::User& to = *out.add_users();
    to.set_name(name);
    to.set_disabled(user.disabled);
    FillRoles(user, to.mutable_roles());
  }
  return out;
}

void FillWhoAmI(const Actor& actor, const UserDirectory& users, v1::WhoAmIResponse* response) {
  const bool admin = actor.kind == Actor::Kind::kAdmin;
  response->set_name(actor.name);
  response->set_kind(admin ? "admin" : "user");
  response->set_as_user(actor.as_user);
  response->set_has_users(users.in_force());
  if (admin && actor.as_user.empty())
    return FillRoles(UserSpec{.cluster = UserRole::kAdmin}, response->mutable_roles());
  const UserSpec* user = users.Find(actor.user());
  if (user == nullptr) return;
  response->set_disabled(user->disabled);
  FillRoles(*user, response->mutable_roles());
}

v1::ShowQueuesResponse ToProto(const QueuesView& view) {
  v1::ShowQueuesResponse out;
  out.set_version(view.tree->version);
  out.set_yaml(view.tree->version == 0 ? kDefaultQueueFile : *view.yaml);
  out.set_half_life_seconds(view.tree->half_life_seconds);
  for (std::size_t i = 0; i < view.queues.size(); ++i) FillQueue(view, i, *out.add_queues());
  for (const PriorityClass& each : view.tree->classes) {
    v1::PriorityClass& to = *out.add_classes();
    to.set_name(each.name);
    to.set_value(each.value);
  }
  return out;
}

namespace {

// A message has room for more: a row has about 60 bytes, 110 with the longest name.
constexpr int kMaxUsageRows = 200'000;

v1::UsedSeconds SecondsOf(const UsedMicros& used) {
  v1::UsedSeconds seconds;
  seconds.set_productive(static_cast<double>(used.productive) / 1e6);
  seconds.set_lost(static_cast<double>(used.lost) / 1e6);
  return seconds;
}

// The queue and all below it.
std::set<std::string> WithQueuesBelow(const QueueTree& tree, const std::string& name) {
  std::set<std::string> names = {name};
  for (const QueueSpec& spec : tree.queues)  // parents come first
    if (spec.parent >= 0 && names.contains(tree.queues[static_cast<std::size_t>(spec.parent)].name))
      names.insert(spec.name);
  return names;
}

// By queue, and by user if that is asked for.
using UsageOfDay = std::map<std::pair<std::string_view, std::string_view>, QueueTotal>;

}  // namespace

Status FillUsage(const QueueDays& days, const QueueTree& tree, const v1::ShowUsageRequest& request,
                 const std::function<bool(const QueueDayRecord&)>& may_see,
                 v1::ShowUsageResponse* response) {
  const std::string& wanted = request.queue();
  const std::set<std::string> names = WithQueuesBelow(tree, wanted);
  bool known = wanted.empty() || tree.Find(wanted) >= 0;
  for (const auto& [day, records] : days) {
    const bool within = day >= std::max(request.since_day(), kOlderDays + 1) &&
                        (request.until_day() == 0 || day <= request.until_day());
    UsageOfDay rows;
    for (const auto& [key, record] : records) {
      known = known || record.queue == wanted;
      if (!within || (!wanted.empty() && !names.contains(record.queue)) || !may_see(record) ||
          (!request.user().empty() && record.user != request.user()))
        continue;
      const std::string_view user = request.by_user() ? record.user : std::string_view();
      QueueTotal& row = rows[{record.queue, user}];
      row.gpus += record.gpus;
      row.slots += record.slots;
    }
    for (const auto& [who, used] : rows) {
      if (response->days_size() == kMaxUsageRows)
        return InvalidArgument("that is more than " + std::to_string(kMaxUsageRows) +
                               " rows; name a queue, a user, or fewer days");
      v1::QueueDay& row = *response->add_days();
      row.set_day(day);
      row.set_queue(std::string(who.first));
      row.set_user(std::string(who.second));
      *row.mutable_gpus() = SecondsOf(used.gpus);
      *row.mutable_slots() = SecondsOf(used.slots);
    }
  }
  return known ? OkStatus() : NotFound(UnknownQueue(tree, wanted) + "\n  next: muster queues show");
}

}  // namespace muster
