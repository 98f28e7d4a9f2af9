#include "trainer/train/rank_snapshots.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "trainer/fsdp/state_plan.h"
#include "trainer/state/snapshot/restore.h"

namespace muster {
namespace {

// What a rank makes a segment for.
constexpr const char* kOwn = "";
constexpr const char* kKept = "-kept";

// As they travel; the rest is zeros.
using SegmentName = std::array<char, 64>;

void SetName(SegmentName* to, const std::string& name) {
  MUSTER_CHECK(name.size() < to->size(), "a segment's name fits its message");
  std::memcpy(to->data(), name.data(), name.size());
}

}  // namespace

std::string RankSnapshots::NameFor(const char* suffix) const {
  return "g" + std::to_string(env_.generation) + "-rank" + std::to_string(env_.rank) + suffix;
}

bool RankSnapshots::IsOfThisRank(const Segment& segment, const char* suffix) const {
  return segment.spec().name.ends_with("-rank" + std::to_string(env_.rank) + suffix);
}

Status RankSnapshots::Begin(const std::optional<AdapterOrigin>& origin, Step newest_checkpoint,
                            FsdpOptions* options) {
  MUSTER_ASSIGN_OR_RETURN(cut_, AgreeOnCut(run_.communicator, retained_.readable()));
  std::vector<std::string> held = run_.retained->weights.names();
  for (std::string& name : NamesInCut()) held.push_back(std::move(name));
  run_.supervisor.Cut(env_.generation, held);
  keeps_cut_ = cut_ && cut_->state.step < newest_checkpoint;
  MUSTER_ASSIGN_OR_RETURN(SegmentSpec plan,
                          PlanSegment(NameFor(kOwn), run_.inputs->config, *options,
                                      {.rank = env_.rank, .world_size = env_.world_size}));
  plan.adapter = origin;
  MUSTER_RETURN_IF_ERROR(AgreeOnOwn(plan));
  if (!no_memory_.ok() && keeps_cut_) {
    keeps_cut_ = false;
    cut_.reset();
    MUSTER_RETURN_IF_ERROR(AgreeOnOwn(plan));
  }
  if (!no_memory_.ok()) return OkStatus();
  options->segment = own_;
  return OkStatus();
}

std::vector<std::string> RankSnapshots::NamesInCut() const {
  std::vector<std::string> names;
  if (!cut_) return names;
  for (const Segment* each : retained_.readable()) {
    if (each->Find(cut_->state)) names.push_back(each->spec().name);
  }
  return names;
}

Status RankSnapshots::AgreeOnOwn(const SegmentSpec& plan) {
  const Result<Segment*> own = MakeOwn(plan);
  std::int64_t lacking = own.ok() ? 0 : 1;
  MUSTER_RETURN_IF_ERROR(
      run_.communicator.AllReduce(&lacking, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  own_ = lacking == 0 ? *own : nullptr;
  no_memory_ = own.status();
  if (lacking != 0 && own.ok()) {
    no_memory_ = ResourceExhausted("another rank has no memory for its segment");
  }
  return OkStatus();
}

Segment* RankSnapshots::ChooseOwn(const SegmentSpec& plan) {
  Segment* fitting = nullptr;
  for (const auto& each : retained_.segments()) {
    if (!each->writable() || !IsOfThisRank(*each, kOwn) || !SameShard(each->spec(), plan)) continue;
    if (keeps_cut_ && each->Find(cut_->state)) continue;
    in_place_ = cut_ && IsInPlace(*each, plan, *cut_);
    if (in_place_) return each.get();
    fitting = each.get();
  }
  return fitting;
}

// A segment that no rank resumes from serves as well as new memory.
Result<Segment*> RankSnapshots::MakeOwn(const SegmentSpec& plan) {
  if (Segment* const old = ChooseOwn(plan)) {
    if (in_place_) {
      old->Continue(env_.generation, cut_->state);
    } else {
      old->Begin(env_.generation);
      holds_old_state_ = true;
    }
    return old;
  }
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Segment> made, Segment::Create(plan, env_.generation));
  run_.supervisor.HoldSegment(env_.generation, plan.name, made->fd());
  return retained_.Add(std::move(made));
}

Result<std::optional<TrainCursor>> RankSnapshots::Restore(FsdpEngine& engine) {
  if (!cut_) return std::optional<TrainCursor>();
  const ShardState& state = engine.state();
  const Result<RestoreOutcome> outcome =
      RestoreCut(run_.communicator, *cut_, retained_.readable(), state.CheckpointArrays(),
                 {.in_place = in_place_ && state.in_segment(), .memory = state.array_memory()});
  if (outcome.ok()) return std::optional<TrainCursor>(outcome->cursor);
  switch (outcome.status().code()) {
    case StatusCode::kUnavailable:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kCancelled: return outcome.status();
    default: break;
  }
  // The same on all ranks. What is loaded instead is another course of training.
  refused_ = outcome.status();
  holds_old_state_ = true;
  cut_.reset();
  if (own_ != nullptr) own_->Begin(env_.generation);
  return std::optional<TrainCursor>();
}

Status RankSnapshots::Keep(int replicas) {
  if (own_ != nullptr) MUSTER_RETURN_IF_ERROR(KeepBuddy(replicas));
  return ShareNames();
}

// A copy of an earlier generation is filled on; nothing else that is here may be written to.
Status RankSnapshots::KeepBuddy(int replicas) {
  MUSTER_ASSIGN_OR_RETURN(const bool apart, SharedMemoryDisabled(std::getenv));
  BuddyOptions options{.wanted = run_.train().snapshot.buddy,
                       .ranks_per_node = env_.local_world_size,
                       .replicas = replicas,
                       .ring = env_.buddy_ring,
                       .generation = env_.generation,
                       .name = NameFor(kKept),
                       .force_copy = apart};
  if (cut_) options.from = cut_->state;
  std::vector<std::unique_ptr<Segment>> copies =
      retained_.TakeOut([this](const Segment& each) { return IsOfThisRank(each, kKept); });
  Result<std::unique_ptr<Buddy>> buddy = Buddy::Create(run_.communicator, *own_, options, &copies);
  for (auto& each : copies) retained_.Add(std::move(each));
  if (!buddy.ok()) return buddy.status();
  buddy_ = *std::move(buddy);
  return buddy_ ? HoldKept() : OkStatus();
}

// The buddy's own mapping goes with it; the next generation reads this one.
Status RankSnapshots::HoldKept() {
  const Segment& kept = buddy_->kept();
  run_.supervisor.HoldSegment(env_.generation, kept.spec().name, kept.fd());
  UniqueFd fd(::fcntl(kept.fd(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "another descriptor of a snapshot segment");
  return retained_.Add(HeldSegment{kept.spec().name, std::move(fd)});
}

Status RankSnapshots::ShareNames() {
  std::array<SegmentName, 2> mine = {};
  if (own_ != nullptr) SetName(&mine[0], own_->spec().name);
  if (buddy_) SetName(&mine[1], buddy_->kept().spec().name);
  std::vector<SegmentName> all(mine.size() * static_cast<std::size_t>(run_.communicator.size()));
  MUSTER_RETURN_IF_ERROR(
      run_.communicator.AllGather(mine.data(), all.data(), sizeof mine, ElementType::kUint8)
          ->Wait());
  for (const SegmentName& name : all) in_use_.emplace(name.data());
  return OkStatus();
}

void RankSnapshots::LetGoOfOld() {
  for (const std::string& name : retained_.KeepOnly(in_use_)) {
    run_.supervisor.DropSegment(env_.generation, name);
  }
}

}  // namespace muster
