#include "trainer/comm/communicator.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace muster {
namespace {

std::string GroupName(const std::string& name, const std::vector<int>& members) {
  std::string text = name + "[";
  for (const int member : members) text += std::to_string(member) + ",";
  text.back() = ']';
  return text;
}

Status CheckMembers(const std::vector<int>& members, int rank, int size) {
  std::vector<int> sorted = members;
  std::ranges::sort(sorted);
  const bool repeated = std::ranges::adjacent_find(sorted) != sorted.end();
  if (repeated || !std::ranges::binary_search(sorted, rank) || sorted.front() < 0 ||
      sorted.back() >= size) {
    return InvalidArgument("the members of a group are ranks of its communicator, this one (" +
                           std::to_string(rank) + " of " + std::to_string(size) +
                           ") among them, each named once");
  }
  return OkStatus();
}

}  // namespace

struct Communicator::Reach {
  std::mutex mutex;
  std::optional<Status> aborted;  // since the last Form began
  Generation generation = 0;      // that was last formed, or is being formed
  Generation called_off = -1;     // through which Form fails
  Status called_off_reason;
  // Null for a group: its own abort leaves the meetings of other groups alone.
  std::shared_ptr<RendezvousStore> place;
  std::shared_ptr<Transport> transport;  // null: not formed; written by the trainer's thread alone
  std::vector<std::weak_ptr<Reach>> below;

  // With `through`, only if the generation is no later one. All that decides is one step under the
  // lock, so that no abort of one generation hits the next.
  void Abort(const Status& reason, std::optional<Generation> through = std::nullopt) {
    std::shared_ptr<Transport> reached;
    std::vector<std::weak_ptr<Reach>> groups;
    {
      std::lock_guard lock(mutex);
      if (through && *through > called_off) {
        called_off = *through;
        called_off_reason = reason;
      }
      if (through && *through < generation) return;
      if (!aborted) aborted = reason;
      if (place) place->Cancel(reason);
      reached = transport;
      groups = below;
    }
    if (reached) reached->Abort(reason);
    for (const auto& weak : groups) {
      if (const auto group = weak.lock()) group->Abort(reason);
    }
  }
};

Communicator::Communicator(std::shared_ptr<RendezvousStore> place)
    : Communicator(std::move(place), true) {}

Communicator::Communicator(std::shared_ptr<RendezvousStore> place, bool is_world)
    : place_(std::move(place)),
      counters_(std::make_shared<CollectiveCell>()),
      reach_(std::make_shared<Reach>()),
      is_world_(is_world) {
  if (is_world) reach_->place = place_;
}

Communicator::~Communicator() { Leave(); }

void Communicator::Leave() {
  std::shared_ptr<Transport> transport;
  std::vector<std::weak_ptr<Reach>> groups;
  {
    std::lock_guard lock(reach_->mutex);
    transport = std::move(reach_->transport);
    groups = std::exchange(reach_->below, {});
  }
  // First, so that groups that share one fate leave in order together.
  if (is_world_) place_->Close();
  for (const auto& weak : groups) {
    if (const auto group = weak.lock()) {
      group->Abort(Cancelled("the communicator that this group is a part of was taken apart"));
    }
  }
  transport.reset();
  RetireCell(*counters_);
  splits_.clear();
}

Status Communicator::Form(Rendezvous rendezvous, Deadline deadline) {
  if (!is_world_) return FailedPrecondition("a group is formed by Split, never again by Form");
  Leave();
  const int rank = rendezvous.rank;
  const int size = rendezvous.world_size;
  if (size < 1 || rank < 0 || rank >= size) {
    return InvalidArgument("rank " + std::to_string(rank) + " of " + std::to_string(size) +
                           " is not a place in a gang");
  }
  const Generation generation = rendezvous.generation;
  const bool spans_nodes = rendezvous.spans_nodes;
  MUSTER_RETURN_IF_ERROR(BeginForm(generation));
  Status formed = place_->Open(std::move(rendezvous), deadline);
  if (formed.ok()) formed = Join("world", {"world", generation, rank, size, spans_nodes}, deadline);
  if (formed.ok()) return formed;
  place_->Close();
  std::lock_guard lock(reach_->mutex);
  return reach_->aborted ? *reach_->aborted : formed;
}

Status Communicator::BeginForm(Generation generation) {
  std::lock_guard lock(reach_->mutex);
  if (generation <= reach_->called_off) return reach_->called_off_reason;
  reach_->aborted.reset();
  reach_->generation = generation;
  place_->Rearm();
  return OkStatus();
}

Status Communicator::Join(const std::string& name, Group group, Deadline deadline) {
  {
    std::lock_guard lock(reach_->mutex);
    counters_.reset();
    counters_ = ClaimCell(page_, name);
  }
  auto met = place_->Meet(group, counters_, deadline);
  {
    std::lock_guard lock(reach_->mutex);
    if (reach_->aborted) return *reach_->aborted;
    if (!met.ok()) return met.status();
    reach_->transport = *met;
  }
  group_ = std::move(group);
  Status begun = (*met)->Begin(deadline);
  if (begun.ok()) return begun;
  std::lock_guard lock(reach_->mutex);
  reach_->transport.reset();
  return begun.WithContext("forming a gang of " + std::to_string(group_.size));
}

void Communicator::Abort(const Status& reason) { reach_->Abort(reason); }

void Communicator::AbortThrough(Generation generation, const Status& reason) {
  if (is_world_) {
    reach_->Abort(reason, generation);
  } else {
    reach_->Abort(reason);
  }
}

Status Communicator::CheckFormed() const {
  if (reach_->transport) return OkStatus();
  return FailedPrecondition("the communicator has not been formed");
}

Result<std::unique_ptr<SharedRegion>> Communicator::Share(RegionKind kind, std::size_t bytes,
                                                          int kept) {
  MUSTER_RETURN_IF_ERROR(CheckFormed());
  return reach_->transport->Share(kind, bytes, kept);
}

Result<std::unique_ptr<Communicator>> Communicator::Split(const std::string& name,
                                                          const std::vector<int>& members,
                                                          Deadline deadline) {
  MUSTER_RETURN_IF_ERROR(CheckFormed());
  MUSTER_RETURN_IF_ERROR(CheckMembers(members, group_.rank, group_.size));
  const std::string asked = GroupName(name, members);
  const auto before = std::ranges::count(splits_, asked);
  splits_.push_back(asked);
  std::unique_ptr<Communicator> group(new Communicator(place_, false));
  group->page_ = page_;
  {
    std::lock_guard lock(reach_->mutex);
    if (reach_->aborted) return *reach_->aborted;
    std::erase_if(reach_->below, [](const auto& weak) { return weak.expired(); });
    reach_->below.push_back(group->reach_);
  }
  const auto place = std::ranges::find(members, group_.rank) - members.begin();
  const Status joined =
      group->Join(name,
                  {group_.name + "/" + asked + "#" + std::to_string(before), group_.generation,
                   static_cast<int>(place), static_cast<int>(members.size())},
                  deadline);
  if (joined.ok()) return group;
  // An abort ends the meeting before the group has heard why.
  std::lock_guard lock(reach_->mutex);
  return reach_->aborted ? *reach_->aborted : joined;
}

std::unique_ptr<Work> Communicator::Submit(const Operation& operation) {
  counters_->enqueued.fetch_add(1, std::memory_order_relaxed);
  if (page_) page_->CountOperation(operation.kind);
  if (Status formed = CheckFormed(); !formed.ok()) return std::make_unique<FinishedWork>(formed);
  return reach_->transport->Submit(operation);
}

std::unique_ptr<Work> Communicator::AllGather(const void* shard, void* full, std::size_t count,
                                              ElementType type) {
  return Submit({.kind = CollectiveOp::kAllGather,
                 .source = shard,
                 .data = full,
                 .count = count,
                 .type = type});
}

std::unique_ptr<Work> Communicator::ReduceScatter(const ReduceScatterArgs& args) {
  if (Status s = CheckReduceTypes(args.full_type, args.sum_type, args.shard_type); !s.ok()) {
    return std::make_unique<FinishedWork>(std::move(s));
  }
  return Submit({.kind = CollectiveOp::kReduceScatter, .reduce_scatter = args});
}

std::unique_ptr<Work> Communicator::AllReduce(void* data, std::size_t count, ElementType type,
                                              ReduceOp op) {
  return Submit(
      {.kind = CollectiveOp::kAllReduce, .data = data, .count = count, .type = type, .op = op});
}

std::unique_ptr<Work> Communicator::Broadcast(void* data, std::size_t bytes, int root) {
  if (root < 0 || root >= group_.size) {
    return std::make_unique<FinishedWork>(InvalidArgument("broadcast root " + std::to_string(root) +
                                                          " is not a rank of a gang of " +
                                                          std::to_string(group_.size)));
  }
  return Submit({.kind = CollectiveOp::kBroadcast, .data = data, .count = bytes, .root = root});
}

std::unique_ptr<Work> Communicator::RingSendRecv(const void* send, void* receive,
                                                 std::size_t bytes) {
  return Submit(
      {.kind = CollectiveOp::kRingSendRecv, .source = send, .data = receive, .count = bytes});
}

std::unique_ptr<Work> Communicator::AllToAll(const AllToAllArgs& args) {
  if (Status s = CheckAllToAll(args, group_.rank, group_.size); !s.ok()) {
    return std::make_unique<FinishedWork>(std::move(s));
  }
  return Submit({.kind = CollectiveOp::kAllToAll,
                 .source = args.send,
                 .data = args.receive,
                 .send_bytes = args.send_bytes,
                 .receive_bytes = args.receive_bytes});
}

Status Communicator::Barrier() { return Submit({.kind = CollectiveOp::kBarrier})->Wait(); }

CommunicatorCounters Communicator::counters() const {
  std::lock_guard lock(reach_->mutex);
  return {counters_->enqueued.load(std::memory_order_relaxed),
          counters_->started.load(std::memory_order_relaxed),
          counters_->completed.load(std::memory_order_relaxed),
          counters_->bytes.load(std::memory_order_relaxed),
          counters_->wait_nanoseconds.load(std::memory_order_relaxed)};
}

std::string Communicator::Describe() const {
  return reach_->transport ? reach_->transport->Describe() : "not formed";
}

bool Communicator::shares_memory() const {
  return reach_->transport && reach_->transport->shares_memory();
}

std::string Communicator::fallback() const {
  return reach_->transport ? reach_->transport->fallback() : "";
}

}  // namespace muster
