// Of World: users who submit jobs, some of them held, cancel some, suspend others and resume them.
// They repeat what got no answer, and what they may not submit yet, with the same key.
#include <algorithm>
#include <array>
#include <cstdio>

#include "common/job_spec/parse.h"
#include "coordinator/access/user_file.h"
#include "coordinator/queues/queue_file.h"
#include "tests/simulation/world.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kTimeout = seconds(2);

// What the coordinator's disk refuses is asked for again, as what gets no reply.
bool IsRefused(const Reply& reply) { return reply.status.code() == StatusCode::kResourceExhausted; }

constexpr std::array<const char*, 3> kOwners = {"ada", "bob", "carl"};

}  // namespace

void World::MakeJob(int number) {
  Request& request = requests_[static_cast<std::size_t>(number)];
  const int nodes = std::min(1 << random_.Pick(6), node_count() / 2);
  const int per_node = random_.Between(1, nodes_.front()->gpus());
  const bool train = !random_.Chance(0.12);
  SimJobPlan& plan = request.plan;
  plan.train = train;
  std::string& yaml = request.yaml;
  yaml = "name: job" + std::to_string(number) + "\nresources: {nodes: " + std::to_string(nodes) +
         ", ranks_per_node: " + std::to_string(per_node);
  if (train && nodes > 1 && random_.Chance(0.4)) {
    yaml += ", min_nodes: " + std::to_string(random_.Between(1, nodes));
  }
  const bool spares = random_.Chance(0.3);
  if (spares) yaml += ", spares: 1";
  // In every fourth seed, with its own dice: the others' fates stay what they were.
  const std::uint64_t die = Mix(options_.seed, static_cast<std::uint64_t>(number));
  const bool shares = SharesSpares() && die / 17 % 3 != 0;
  if (shares && spares) yaml += ", share_spares: true";
  if (options_.seed % 4 == 1 && die % 3 == 0) {
    yaml += ", time_limit: " + std::to_string(1 + die / 3 % 40) + "s";
  }
  if (die / 7 % 2 == 0) yaml += ", device: cuda";
  yaml += "}\npriority: " + std::to_string(random_.Between(0, 100)) + "\nworkdir: /jobs\n";
  yaml += "restart: {max_without_progress: " + std::to_string(kAttemptsWithoutProgress) +
          ", in_place: " + std::string(random_.Chance(0.8) ? "true" : "false") + "}\n";
  if (IsHeld(number)) yaml += "hold: true\n";
  if (shares && !spares) yaml += "preemptible: true\n";
  if (HasQueues() && die / 11 % 4 == 0) yaml += "class: urgent\n";
  plan.queue = HasQueues() && die / 13 % 3 == 0 ? "team" : "default";
  if (plan.queue != "default") yaml += "queue: " + plan.queue + "\n";
  if (HasUsers()) plan.owner = kOwners[static_cast<std::size_t>(number) % kOwners.size()];
  if (!train) {
    yaml += "command: [./program]\n";
    return;
  }
  plan.max_steps = random_.Between(15, 60);
  plan.checkpoint_every = random_.Between(3, 12);
  plan.compute = milliseconds(random_.Between(100, 900));
  plan.snapshots = random_.Chance(0.8);
  plan.buddies = nodes > 1 && random_.Chance(0.8);
  plan.buddy_copies = random_.Chance(0.5);
  yaml +=
      "train:\n  model: {path: model}\n  data: {train: rows.jsonl}\n"
      "  schedule: {max_steps: " +
      std::to_string(plan.max_steps) +
      "}\n  checkpoint: {every: " + std::to_string(plan.checkpoint_every) +
      ", keep: 2}\n  output: {dir: out-" + std::to_string(number) + "}\n";
}

// Jobs give way to others soon, and often.
void World::ApplyQueues() {
  if (queues_applied_) return;
  QueuesApplyRequested apply;
  const std::string limits = !HasUsers() ? std::string()
                                         : "per_user: {running: " + std::to_string(kUserRuns) +
                                               ", queued: " + std::to_string(kUserQueues) + "}";
  const std::string nodes = std::to_string(node_count());
  if (HasQueues()) {
    apply.yaml =
        "classes: {urgent: 1}\npreemption: {after: 3s, every: 10s}\n"
        "queues:\n  default: {" +
        limits + "}\n  team: {guarantee: {gpus: " + nodes + ", slots: " + nodes + "}" +
        (limits.empty() ? "" : ", ") + limits + "}\n";
  } else {
    apply.yaml = "queues: {default: {" + limits + "}}\n";
  }
  apply.tree = ParseQueueFile(apply.yaml, "queues");
  coordinator_->Ask(apply, [this](const Reply& reply) {
    queues_applied_ = queues_applied_ || reply.status.ok();
  });
  queue_.After(kTimeout, [this] { ApplyQueues(); });
}

void World::ApplyUsers() {
  if (users_applied_) return;
  UsersApplyRequested apply;
  apply.yaml =
      "users: {ada: , bob: , carl: }\nroles: [{role: submitter, users: [ada, bob, carl]}]\n";
  apply.users = ParseUserFile(apply.yaml, "users");
  coordinator_->Ask(
      apply, [this](const Reply& reply) { users_applied_ = users_applied_ || reply.status.ok(); });
  queue_.After(kTimeout, [this] { ApplyUsers(); });
}

// No owner has more jobs that wait than were ever asked for.
void World::CheckRefusal(int number, const Status& refusal) {
  if (refusal.message().find("one user may have") == std::string::npos) return;
  const SimJobPlan& plan = requests_[static_cast<std::size_t>(number)].plan;
  const auto others = std::ranges::count_if(requests_, [&](const Request& other) {
    return other.asked && other.plan.owner == plan.owner && other.plan.queue == plan.queue;
  });
  if (others - 1 < kUserQueues)
    oracle_->Violate("a user's own jobs count", plan.owner + ": " + refusal.message());
}

void World::SubmitLater(int number) {
  Request& request = requests_[static_cast<std::size_t>(number)];
  MakeJob(number);
  request.key = "key-" + std::to_string(number);
  const Duration span = options_.faulty * 3 / 4;
  queue_.After(seconds(3) + random_.Delay(milliseconds(0), span), [this, number] { Ask(number); });
  SuspendLater(number);
  const std::uint64_t die = Mix(options_.seed, static_cast<std::uint64_t>(number));
  if (IsHeld(number))
    queue_.After(seconds(5 + static_cast<int>(die / 3 % 60)),
                 [this, number] { AskRelease(number); });
}

void World::Ask(int number) {
  Request& request = requests_[static_cast<std::size_t>(number)];
  if (request.id) return;
  if (!FilesApplied()) {
    queue_.After(kTimeout, [this, number] { Ask(number); });
    return;
  }
  request.asked = true;
  SubmitRequested submit;
  if (HasUsers()) submit.actor = {.kind = Actor::Kind::kUser, .name = request.plan.owner};
  submit.spec_yaml = request.yaml;
  submit.spec = ParseJobSpec(request.yaml);
  submit.key = request.key;
  char id[16];
  std::snprintf(id, sizeof id, "%010llx",
                static_cast<unsigned long long>(random_.Next() & 0xffffffffffull));
  submit.new_id = JobId{id};
  plans_[submit.new_id] = request.plan;
  coordinator_->Ask(submit, [this, number](const Reply& reply) {
    if (IsRefused(reply)) return CheckRefusal(number, reply.status);
    Request& asked = requests_[static_cast<std::size_t>(number)];
    if (!reply.status.ok()) {
      return oracle_->Violate("a good job is taken", reply.status.ToString());
    }
    asked.id = std::get<SubmitAccepted>(reply.body).id;
    oracle_->Acknowledged(*asked.id, asked.key);
  });
  queue_.After(kTimeout, [this, number] { Ask(number); });
}

void World::AskCancel(int number) {
  Request& request = requests_[static_cast<std::size_t>(number)];
  if (!request.id || request.cancelled) return;
  request.cancel = true;
  CancelRequested cancel;
  cancel.job = request.id->value;
  coordinator_->Ask(cancel, [this, number](const Reply& reply) {
    if (IsRefused(reply)) return;
    Request& asked = requests_[static_cast<std::size_t>(number)];
    asked.cancelled = true;
    // It may have ended by itself meanwhile, which is an answer too.
    if (reply.status.ok()) oracle_->CancelAcknowledged(*asked.id);
  });
  queue_.After(kTimeout, [this, number] { AskCancel(number); });
}

// In every fourth seed, with its own dice: the others' fates stay what they were.
void World::SuspendLater(int number) {
  const std::uint64_t die = Mix(options_.seed, static_cast<std::uint64_t>(number));
  if (options_.seed % 4 != 2 || die % 3 == 0) return;
  const Duration at = seconds(5 + static_cast<int>(die / 3 % 50));
  const Duration aside = seconds(1 + static_cast<int>(die / 1000 % 30));
  // No limit, or one that is often too short.
  const double by = die % 2 == 0 ? 0 : static_cast<double>(1 + die / 64 % 20);
  queue_.After(at, [this, number, by] { AskSuspend(number, by); });
  queue_.After(at + aside, [this, number] { AskResume(number); });
}

void World::AskSuspend(int number, double by_seconds) {
  const Request& request = requests_[static_cast<std::size_t>(number)];
  if (calm_ || request.suspended) return;
  if (request.id) {
    SuspendRequested suspend;
    suspend.job = request.id->value;
    suspend.by_seconds = by_seconds;
    coordinator_->Ask(suspend, [this, number](const Reply& reply) {
      if (IsRefused(reply)) return;
      Request& asked = requests_[static_cast<std::size_t>(number)];
      asked.suspended = true;
      // It may be over or on its way there, which is an answer too.
      if (reply.status.ok()) oracle_->SuspendAcknowledged(*asked.id);
    });
  }
  queue_.After(kTimeout, [this, number, by_seconds] { AskSuspend(number, by_seconds); });
}

void World::AskResume(int number) {
  const Request& request = requests_[static_cast<std::size_t>(number)];
  if (calm_ || request.resumed) return;
  if (request.id && request.suspended && coordinator_->up()) {
    ResumeRequested resume;
    resume.job = request.id->value;
    oracle_->ResumeAsked(*request.id);
    coordinator_->Ask(resume, [this, number](const Reply& reply) {
      oracle_->ResumeAnswered(*requests_[static_cast<std::size_t>(number)].id);
      // Refused as long as it is on its way to be suspended.
      requests_[static_cast<std::size_t>(number)].resumed = reply.status.ok();
    });
  }
  queue_.After(kTimeout, [this, number] { AskResume(number); });
}

// In every fourth seed, with its own dice.
bool World::IsHeld(int number) const {
  return options_.seed % 4 == 3 && Mix(options_.seed, static_cast<std::uint64_t>(number)) % 3 == 0;
}

void World::AskRelease(int number) {
  const Request& request = requests_[static_cast<std::size_t>(number)];
  if (request.released) return;
  if (request.id && coordinator_->up()) {
    oracle_->ReleaseAsked(*request.id);
    coordinator_->Ask(ReleaseRequested{.job = request.id->value},
                      [this, number](const Reply& reply) {
                        if (IsRefused(reply)) return;
                        Request& asked = requests_[static_cast<std::size_t>(number)];
                        // It may have been cancelled meanwhile, which is an answer too.
                        asked.released = true;
                        if (reply.status.ok()) oracle_->ReleaseAcknowledged(*asked.id);
                      });
  }
  queue_.After(kTimeout, [this, number] { AskRelease(number); });
}

// No suspended job is left for good.
void World::ResumeAll() {
  bool waits = false;
  if (coordinator_->up()) {
    std::vector<JobId> suspended;
    for (const JobView& job : coordinator_->controller().Jobs()) {
      const JobRecord& record = *job.record;
      waits = waits || (record.stop == StopKind::kSuspend && !IsTerminal(record.state));
      if (record.state == JobState::kSuspended) suspended.push_back(record.id);
    }
    waits = waits || !suspended.empty();
    for (const JobId& id : suspended) {
      ResumeRequested resume;
      resume.job = id.value;
      oracle_->ResumeAsked(id);
      coordinator_->Ask(resume, [this, id](const Reply&) { oracle_->ResumeAnswered(id); });
    }
  }
  // What was asked just before may not be decided yet.
  const bool settled = queue_.now() - calm_at_ > seconds(30);
  if (waits || !settled) queue_.After(kTimeout, [this] { ResumeAll(); });
}

}  // namespace muster::sim
