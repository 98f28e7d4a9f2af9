#include "tests/simulation/sim_trainer.h"

#include <algorithm>

#include "common/base/json.h"
#include "common/checkpoint_format/shard_name.h"
#include "common/control_pipe/trainer_protocol.h"

namespace muster::sim {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr Content kUntrained = 7;

std::string CheckpointName(Step step, Generation generation) {
  return "step-" + std::to_string(step) + "-g" + std::to_string(generation);
}

}  // namespace

std::vector<SegmentPtr> SimProcess::Readable() const {
  std::vector<SegmentPtr> all = given;
  for (const SegmentPtr& mine : {own, buddy_copy}) {
    if (mine && std::find(all.begin(), all.end(), mine) == all.end()) all.push_back(mine);
  }
  return all;
}

void Report(SimProcess& process, const std::string& text, SegmentPtr segment) {
  if (process.alive()) process.pipe.report(text, std::move(segment));
}

void ContinueProcess(const ProcessPtr& process) {
  if (!process->stopped || process->unkillable) return;
  process->stopped = false;
  for (const auto& go_on : std::exchange(process->on_continue, {})) go_on();
  if (const auto gang = process->gang.lock()) gang->TryGoOn();
}

void EndProcess(const ProcessPtr& process, int exit_code, int signal, PeersFeel peers) {
  if (!process->alive()) return;
  process->state = SimProcess::State::kEnded;
  ++process->assignment;
  process->on_continue.clear();
  process->pipe.exited(exit_code, signal);
  if (peers == PeersFeel::kLater) return;
  if (const auto gang = process->gang.lock()) gang->Break(process);
}

SimGang::SimGang(TrainerContext& context, JobId job, Generation generation, int world_size)
    : context_(context),
      job_(std::move(job)),
      generation_(generation),
      members_(static_cast<std::size_t>(world_size)) {}

std::string SimGang::Describe() const {
  static constexpr const char* kStates[] = {"starting", "standby", "forming", "loading",
                                            "training", "parked",  "ended"};
  std::string text = "gang of g" + std::to_string(generation_) + " after step " +
                     std::to_string(step_) + (broken_ ? ", broken:" : ":");
  for (const ProcessPtr& member : members_) {
    text += member ? " " + std::to_string(member->pid) + " on n" + std::to_string(member->node) +
                         " " + kStates[static_cast<int>(member->state)]
                   : " nobody";
    if (member && member->hung) text += " hung";
    if (member && member->stopped) text += " stopped";
    if (member && member->generation != generation_) {
      text += " in g" + std::to_string(member->generation);
    }
    if (member && waiting_.contains(member->rank)) text += " waits";
    text += ",";
  }
  return text;
}

void SimGang::Do(const ProcessPtr& process, Duration delay, std::function<void()> action) {
  context_.queue->After(delay, [self = shared_from_this(), process, action = std::move(action),
                                assignment = process->assignment] {
    if (process->assignment != assignment || !process->alive() || process->hung) return;
    if (process->stopped) {
      return process->on_continue.push_back(
          [self, process, action] { self->Do(process, Duration::zero(), action); });
    }
    process->stores += 2;
    action();
  });
}

bool SimGang::AllMove() const {
  for (const ProcessPtr& member : members_) {
    if (!member || !member->moves() || member->generation != generation_) return false;
    if (!context_.reachable(members_.front()->node, member->node)) return false;
    if (!FindsMaster(*member) || !SharesToken(*member)) return false;
  }
  return true;
}

void SimGang::Join(const ProcessPtr& process, std::vector<std::string> resume) {
  context_.observer.joins(*this, *process);
  ProcessPtr& member = members_[static_cast<std::size_t>(process->rank)];
  if (member && member != process && member->alive() && member->generation == generation_) {
    context_.observer.doubled(*this, process->rank);
  }
  if (broken_) return FeelLoss(process);
  member = process;
  if (process->rank == 0) resume_ = std::move(resume);
  TryGoOn();
}

void SimGang::TryGoOn() {
  if (broken_) return;
  if (!formed_) {
    if (AllMove()) Form();
    return;
  }
  if (!loaded_) {
    if (may_load_ && AllMove()) Load();
    return;
  }
  if (static_cast<int>(waiting_.size()) == world_size() && AllMove()) {
    waiting_.clear();
    stopping_ = StopRequested();
    const Step next = step_ + 1;
    // Of no two computations are the bits the same: what two gangs made of a step must not be
    // mixed.
    const Content content = Mix(Mix(content_, static_cast<std::uint64_t>(next)),
                                static_cast<std::uint64_t>(generation_));
    step_ = next;
    content_ = content;
    context_.observer.trained(job_, next, content);
    finished_ranks_.clear();
    for (const ProcessPtr& member : members_) {
      ++member->completed;
      Update(member, next, content);
    }
  }
}

void SimGang::Form() {
  formed_ = true;
  for (const ProcessPtr& member : members_) {
    member->state = SimProcess::State::kLoading;
    Report(*member, json{{"type", "formed"}, {"generation", generation_}}.dump());
  }
  Do(members_.front(), context_.random->Delay(milliseconds(5), milliseconds(120)),
     [this, self = shared_from_this()] {
       may_load_ = true;
       TryGoOn();
     });
}

std::optional<Cut> SimGang::AgreeOnCut() const {
  if (!plan().snapshots) return std::nullopt;
  std::vector<std::vector<ShardClaim>> claims;
  for (const ProcessPtr& member : members_) {
    std::vector<ShardClaim>& mine = claims.emplace_back();
    for (const SegmentPtr& segment : member->Readable()) {
      for (const ShardClaim& claim : segment->Claims()) mine.push_back(claim);
    }
  }
  return context_.choose_cut(claims);
}

void SimGang::Load() {
  const std::optional<Cut> cut = AgreeOnCut();
  if (plan().snapshots) ReportCut(cut);
  const std::string from = RestoreNewest(cut);
  loaded_ = true;
  MakeSegments(from == "snapshot" ? cut : std::nullopt);
  Resumed(from);
}

void SimGang::ReportCut(const std::optional<Cut>& cut) {
  for (const ProcessPtr& member : members_) {
    json names = json::array();
    for (const SegmentPtr& segment : member->Readable()) {
      if (cut && segment->Find(cut->state) != nullptr) names.push_back(segment->name);
    }
    Report(*member, json{{"type", "cut"}, {"generation", generation_}, {"segments", names}}.dump());
  }
}

// Checkpoints beyond the cut, the cut, older checkpoints, the start.
std::string SimGang::RestoreNewest(const std::optional<Cut>& cut) {
  const CheckpointDisk& disk = (*context_.disks)[job_];
  for (const std::string& directory : resume_) {
    const auto found = disk.find(directory);
    if (cut && found != disk.end() && found->second.step <= cut->state.step) break;
    if (RestoreFromCheckpoint(directory)) return "checkpoint";
    rejected_.push_back({{"directory", directory}, {"reason", "a shard is missing"}});
  }
  if (cut) {
    RestoreFromCut(*cut);
    return "snapshot";
  }
  step_ = 0;
  content_ = kUntrained;
  return "start";
}

// Every shard of the cut must be the same state: this is what a wrong choice shows in.
void SimGang::RestoreFromCut(const Cut& cut) {
  step_ = cut.state.step;
  content_ = 0;
  for (int shard = 0; shard < cut.state.shard_count; ++shard) {
    const ProcessPtr& provider = members_.at(static_cast<std::size_t>(cut.providers.at(shard)));
    for (const SegmentPtr& segment : provider->Readable()) {
      const SimSlot* slot = segment->shard_index == shard ? segment->Find(cut.state) : nullptr;
      if (slot == nullptr) continue;
      // Two different contents make one that no step has.
      content_ = shard == 0 || content_ == slot->content ? slot->content : Mix(1, content_);
      break;
    }
  }
}

bool SimGang::RestoreFromCheckpoint(const std::string& directory) {
  const CheckpointDisk& disk = (*context_.disks)[job_];
  const auto found = disk.find(directory);
  if (found == disk.end()) return false;
  const SimCheckpoint& checkpoint = found->second;
  if (static_cast<int>(checkpoint.shards.size()) != checkpoint.world_size) return false;
  step_ = checkpoint.step;
  content_ = checkpoint.shards.begin()->second;
  for (const auto& [rank, content] : checkpoint.shards) {
    if (content != content_) content_ = Mix(1, content_);
  }
  return true;
}

void SimGang::MakeSegments(const std::optional<Cut>& cut) {
  for (const ProcessPtr& member : members_) {
    member->step = step_;
    member->content = content_;
    if (!plan().snapshots) continue;
    const SimSlot* here = cut && member->own && member->own->shard_index == member->rank &&
                                  member->own->shard_count == world_size()
                              ? member->own->Find(cut->state)
                              : nullptr;
    if (here != nullptr) {
      SimSegment& segment = *member->own;
      segment.parent = cut->state.lineage;
      segment.parent_step = cut->state.step;
      segment.lineage = generation_;
      for (SimSlot& slot : segment.slots) {
        if (slot.step > step_) slot.step = -1;
      }
    } else {
      auto segment = std::make_shared<SimSegment>();
      segment->name = "g" + std::to_string(generation_) + "-own-" + std::to_string(member->rank);
      segment->shard_index = member->rank;
      segment->shard_count = world_size();
      segment->lineage = generation_;
      segment->slots[0] = {step_, content_};
      member->own = segment;
      Report(*member,
             json{{"type", "segment"}, {"generation", generation_}, {"name", segment->name}}.dump(),
             segment);
    }
  }
  if (plan().snapshots && plan().buddies) {
    for (const ProcessPtr& member : members_) SealBuddies(member);
  }
}

void SimGang::Resumed(const std::string& from) {
  context_.observer.resumed(*this, step_, from);
  first_step_ = step_ + 1;
  for (const ProcessPtr& member : members_) {
    member->state = SimProcess::State::kTraining;
    member->step_began = context_.queue->now();
    Report(*member, json{{"type", "resumed"},
                         {"generation", generation_},
                         {"step", step_},
                         {"from", from},
                         {"rejected", rejected_}}
                        .dump());
  }
  // A stop that came meanwhile need not wait for a step.
  stopping_ = StopRequested();
  const bool ends = stopping_ || step_ >= plan().max_steps;
  for (const ProcessPtr& member : members_) ends ? EndTraining(member) : Compute(member);
}

bool SimGang::StopRequested() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const ProcessPtr& member) { return member->stop_requested; });
}

void SimGang::Compute(const ProcessPtr& process) {
  const Duration own = context_.random->Delay(plan().compute / 2, plan().compute);
  Do(process, own, [this, self = shared_from_this(), process] { Arrive(process); });
}

void SimGang::Arrive(const ProcessPtr& process) {
  if (broken_) return FeelLoss(process);
  waiting_.insert(process->rank);
  ++process->joined;
  TryGoOn();
}

void SimGang::Update(const ProcessPtr& process, Step step, Content content) {
  const Duration begin = context_.random->Delay(milliseconds(0), milliseconds(4));
  Do(process, begin, [this, self = shared_from_this(), process, step, content] {
    if (plan().snapshots) process->own->slots[1 - process->own->Newest()].step = -1;
    const Duration duration = context_.random->Delay(milliseconds(1), milliseconds(15));
    if (context_.seals_late) {
      // Planted: it goes on to the next step and may overwrite what others still need.
      Seal(process, step, content);
      return;
    }
    Do(process, duration, [this, self, process, step, content] { Seal(process, step, content); });
  });
}

void SimGang::Seal(const ProcessPtr& process, Step step, Content content) {
  process->step = step;
  process->content = content;
  ++process->steps_done;
  const TimePoint now = context_.queue->now();
  process->step_seconds = ToSeconds(now - std::exchange(process->step_began, now));
  const auto seal = [this, self = shared_from_this(), process, step, content] {
    if (!plan().snapshots) return;
    process->own->slots[1 - process->own->Newest()] = {step, content};
    if (plan().buddies) SealBuddies(process);
  };
  if (context_.seals_late) {
    Do(process, plan().compute * 2, seal);
  } else {
    seal();
  }
  finished_ranks_.insert(process->rank);
  if (static_cast<int>(finished_ranks_.size()) == world_size()) {
    context_.observer.finished_step(*this, step);
  }
  if (step == first_step_) {
    Report(*process,
           json{{"type", "first_step"}, {"generation", generation_}, {"step", step}}.dump());
  }
  if (stopping_ || step >= plan().max_steps) return EndTraining(process);
  if (step % plan().checkpoint_every == 0) SaveCheckpoint(process, [] {});
  Compute(process);
}

// The last state is saved; a gang that was stopped has no more to do, one that is done exports.
void SimGang::EndTraining(const ProcessPtr& process) {
  const std::uint64_t assignment = process->assignment;
  SaveCheckpoint(process, [this, self = shared_from_this(), process, assignment] {
    if (process->assignment != assignment) return;
    if (stopping_ && step_ < plan().max_steps) return Stop(process);
    Do(process, milliseconds(20), [this, self, process] {
      waiting_.insert(process->rank);
      if (static_cast<int>(waiting_.size()) == world_size()) Finish();
    });
  });
}

void SimGang::Stop(const ProcessPtr& process) {
  const Duration rest = context_.random->Delay(milliseconds(1), milliseconds(40));
  Do(process, rest, [this, self = shared_from_this(), process] {
    if (++stopped_ == world_size() && saved_ == world_size()) {
      context_.observer.stopped(*this, step_);
    }
    process->gang.reset();  // as in Finish
    EndProcess(process, 0, 0);
  });
}

// The rank on the next node with the same place holds this rank's segment, or a copy of it.
void SimGang::SealBuddies(const ProcessPtr& process) {
  const int nodes = world_size() / process->ranks_per_node;
  if (nodes < 2) return;
  const ProcessPtr& holder =
      members_[static_cast<std::size_t>((process->rank + process->ranks_per_node) % world_size())];
  if (!plan().buddy_copies) {
    const auto& given = holder->given;
    if (std::find(given.begin(), given.end(), process->own) != given.end()) return;
    holder->given.push_back(process->own);
    Report(
        *holder,
        json{{"type", "segment"}, {"generation", generation_}, {"name", process->own->name}}.dump(),
        process->own);
    return;
  }
  if (!holder->buddy_copy || holder->buddy_copy->shard_index != process->own->shard_index ||
      holder->buddy_copy->lineage != process->own->lineage) {
    holder->buddy_copy = std::make_shared<SimSegment>(*process->own);
    holder->buddy_copy->name = "copy-" + process->own->name;
    holder->buddy_copy->lineage = process->own->lineage;
    Report(
        *holder,
        json{{"type", "segment"}, {"generation", generation_}, {"name", holder->buddy_copy->name}}
            .dump(),
        holder->buddy_copy);
    return;
  }
  const SimSlot newest = process->own->slots[process->own->Newest()];
  SimSlot& slot = holder->buddy_copy->slots[1 - holder->buddy_copy->Newest()];
  slot = context_.buddy_seals_early ? SimSlot{newest.step, Mix(2, newest.content)} : newest;
}

// A thread of the process: it goes on when the trainer's own has parked, and writes one shard after
// the other.
void SimGang::SaveCheckpoint(const ProcessPtr& process, std::function<void()> then) {
  const Shard shard{process->rank, process->step, process->content};
  const Duration writing = context_.random->Delay(milliseconds(30), milliseconds(600));
  process->saver_free = std::max(process->saver_free, context_.queue->now()) + writing;
  context_.queue->At(process->saver_free,
                     [this, self = shared_from_this(), process, shard, then = std::move(then)] {
                       if (process->stopped) {
                         process->on_continue.push_back([this, self, process, shard, then] {
                           WriteShard(process, shard, then);
                         });
                       } else {
                         WriteShard(process, shard, then);
                       }
                     });
}

void SimGang::WriteShard(const ProcessPtr& process, const Shard& shard,
                         const std::function<void()>& then) {
  if (!process->alive()) return;
  if (context_.disk_full(job_)) {
    Report(*process, json{{"type", "checkpoint_failed"},
                          {"generation", generation_},
                          {"step", shard.step},
                          {"kind", Name(CheckpointTrouble::kDiskFull)},
                          {"reason", "no space left on device"}}
                         .dump());
    return then();
  }
  const std::string directory = CheckpointName(shard.step, generation_);
  SimCheckpoint& checkpoint = (*context_.disks)[job_][directory];
  checkpoint.step = shard.step;
  checkpoint.world_size = world_size();
  checkpoint.shards[shard.rank] = shard.content;
  if (stopping_ && shard.step == step_) ++saved_;
  Report(*process, json{{"type", "shard_written"},
                        {"generation", generation_},
                        {"step", shard.step},
                        {"directory", directory},
                        {"shard",
                         {{"rank", shard.rank},
                          {"file", ShardFileName(shard.rank)},
                          {"bytes", 1},
                          {"checksum", "xxh3:0"}}}}
                       .dump());
  then();
}

void SimGang::Finish() {
  for (const ProcessPtr& member : members_) {
    Do(member, context_.random->Delay(milliseconds(1), milliseconds(40)), [member, this] {
      Report(*member, json{{"type", "finished"},
                           {"generation", generation_},
                           {"step", plan().max_steps},
                           {"model_dir", "/model"}}
                          .dump());
      member->gang.reset();  // leaves in order: no rank takes its end for a loss
      EndProcess(member, 0, 0);
    });
  }
}

void SimGang::Break(const ProcessPtr& who) {
  if (broken_) return;
  broken_ = true;
  for (const ProcessPtr& member : members_) {
    if (member && member != who) FeelLoss(member);
  }
}

// Its next collective fails; it parks by itself.
void SimGang::FeelLoss(const ProcessPtr& process) {
  if (!process->alive() || process->generation != generation_ ||
      process->state == SimProcess::State::kParked) {
    return;
  }
  Do(process, context_.random->Delay(milliseconds(0), milliseconds(80)),
     [process, generation = generation_] {
       Report(*process, json{{"type", "error"},
                             {"generation", generation},
                             {"kind", "peer_lost"},
                             {"message", "a collective failed: a peer is gone"},
                             {"step", std::max<Step>(process->step, 0)}}
                            .dump());
       ++process->assignment;
       process->state = SimProcess::State::kParked;
       Report(*process, json{{"type", "parked"},
                             {"generation", generation},
                             {"step", std::max<Step>(process->step, 0)}}
                            .dump());
     });
}

}  // namespace muster::sim
