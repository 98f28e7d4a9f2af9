#include "trainer/distributed/in_process_communicator.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "trainer/distributed/ring_communicator.h"

namespace muster {
namespace {

// A block on its way from left to right; lives in the sender's link until it was taken.
struct Block {
  const void* data;
  std::size_t bytes;
  bool taken = false;
};

}  // namespace

// All state of a group: one lock and one condition, since tests need no more.
class InProcessHub {
 public:
  struct Edge {
    std::deque<std::shared_ptr<Block>> blocks;
    bool cut = false;  // one side is gone
  };
  struct Ring {
    explicit Ring(int size) : edges(static_cast<std::size_t>(size)) {}
    std::vector<Edge> edges;  // edges[r] leads from rank r to its right neighbour
    int joined = 0;
  };

  explicit InProcessHub(int size) : size_(size), epochs_(static_cast<std::size_t>(size)) {}

  std::mutex mutex_;
  std::condition_variable changed_;
  const int size_;
  std::map<Generation, std::shared_ptr<Ring>> rings_;
  // Raised by Kill where that rank has no ring yet: a Form of an older epoch fails.
  std::vector<std::uint64_t> epochs_;
  // The ring that each rank formed last.
  std::map<int, std::shared_ptr<Ring>> places_;

  Edge& Right(Ring& ring, int rank) { return ring.edges[static_cast<std::size_t>(rank)]; }
  Edge& Left(Ring& ring, int rank) {
    return ring.edges[static_cast<std::size_t>((rank + size_ - 1) % size_)];
  }
  void Cut(Ring& ring, int rank) {
    Right(ring, rank).cut = true;
    Left(ring, rank).cut = true;
    changed_.notify_all();
  }
};

namespace {

class InProcessLink final : public RingLink {
 public:
  InProcessLink(std::shared_ptr<InProcessHub> hub, std::shared_ptr<InProcessHub::Ring> ring,
                int rank)
      : hub_(std::move(hub)), ring_(std::move(ring)), rank_(rank) {}

  ~InProcessLink() override { Close(); }

  Status PostSend(const void* data, std::size_t bytes) override {
    std::lock_guard lock(hub_->mutex_);
    auto block = std::make_shared<Block>(Block{data, bytes});
    sends_.push_back(block);
    hub_->Right(*ring_, rank_).blocks.push_back(std::move(block));
    hub_->changed_.notify_all();
    return OkStatus();
  }

  Status PostReceive(void* data, std::size_t bytes) override {
    receives_.push_back({data, bytes});
    return OkStatus();
  }

  Status WaitSend(Deadline deadline) override {
    std::unique_lock lock(hub_->mutex_);
    const auto block = sends_.front();
    const auto& edge = hub_->Right(*ring_, rank_);
    MUSTER_RETURN_IF_ERROR(WaitFor(
        lock, deadline, edge, [&] { return block->taken; }, (rank_ + 1) % hub_->size_));
    sends_.pop_front();
    return OkStatus();
  }

  Status WaitReceive(Deadline deadline) override {
    std::unique_lock lock(hub_->mutex_);
    auto& edge = hub_->Left(*ring_, rank_);
    MUSTER_RETURN_IF_ERROR(WaitFor(
        lock, deadline, edge, [&] { return !edge.blocks.empty(); },
        (rank_ + hub_->size_ - 1) % hub_->size_));
    const auto [data, bytes] = receives_.front();
    receives_.pop_front();
    Block& block = *edge.blocks.front();
    if (block.bytes != bytes) {
      return Internal("rank " + std::to_string(rank_) + " expected " + std::to_string(bytes) +
                      " bytes and got " + std::to_string(block.bytes) +
                      ": the ranks do not issue the same collectives");
    }
    std::memcpy(data, block.data, bytes);
    block.taken = true;
    edge.blocks.pop_front();
    hub_->changed_.notify_all();
    return OkStatus();
  }

  // Only blocks that nobody took yet still point into this rank's memory.
  void Drop() override {
    std::lock_guard lock(hub_->mutex_);
    hub_->Right(*ring_, rank_).blocks.clear();
    sends_.clear();
    receives_.clear();
  }

  void Close() override {
    std::lock_guard lock(hub_->mutex_);
    closed_ = true;
    hub_->Cut(*ring_, rank_);
  }

 private:
  template <typename Ready>
  Status WaitFor(std::unique_lock<std::mutex>& lock, Deadline deadline,
                 const InProcessHub::Edge& edge, Ready ready, int peer) {
    const bool woken = hub_->changed_.wait_until(lock, deadline.when(),
                                                 [&] { return closed_ || ready() || edge.cut; });
    if (!woken) return DeadlineExceeded("rank " + std::to_string(peer) + " did not answer in time");
    if (closed_) return Cancelled("the communicator was aborted");
    if (!ready()) return Unavailable("rank " + std::to_string(peer) + " is gone");
    return OkStatus();
  }

  const std::shared_ptr<InProcessHub> hub_;
  const std::shared_ptr<InProcessHub::Ring> ring_;
  const int rank_;
  bool closed_ = false;
  std::deque<std::shared_ptr<Block>> sends_;
  std::deque<std::pair<void*, std::size_t>> receives_;
};

class InProcessConnector final : public RingConnector {
 public:
  InProcessConnector(std::shared_ptr<InProcessHub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank) {}

  Result<std::unique_ptr<RingLink>> Connect(Rendezvous rendezvous, Deadline deadline) override {
    if (rendezvous.rank != rank_ || rendezvous.world_size != hub_->size_) {
      return InvalidArgument("rank and world size differ from those of the in-process group");
    }
    std::unique_lock lock(hub_->mutex_);
    auto& ring = hub_->rings_[rendezvous.generation];
    if (!ring) ring = std::make_shared<InProcessHub::Ring>(hub_->size_);
    const auto mine = ring;
    const std::uint64_t epoch = hub_->epochs_[static_cast<std::size_t>(rank_)];
    ++mine->joined;
    hub_->changed_.notify_all();
    const auto killed = [&] { return hub_->epochs_[static_cast<std::size_t>(rank_)] != epoch; };
    const bool woken = hub_->changed_.wait_until(lock, deadline.when(), [&] {
      return cancelled_ || killed() || mine->joined == hub_->size_;
    });
    if (cancelled_ || killed() || !woken) --mine->joined;
    if (cancelled_) return Cancelled("forming the gang was aborted");
    if (killed()) return Unavailable("this rank was killed");
    if (!woken) return DeadlineExceeded("not all ranks of the gang came in time");
    hub_->places_[rank_] = mine;
    return std::unique_ptr<RingLink>(std::make_unique<InProcessLink>(hub_, mine, rank_));
  }

  void Met() override {}
  void Cancel() override { SetCancelled(true); }
  void Rearm() override { SetCancelled(false); }

 private:
  void SetCancelled(bool cancelled) {
    std::lock_guard lock(hub_->mutex_);
    cancelled_ = cancelled;
    hub_->changed_.notify_all();
  }

  const std::shared_ptr<InProcessHub> hub_;
  const int rank_;
  bool cancelled_ = false;
};

}  // namespace

InProcessGroup::InProcessGroup(int world_size)
    : world_size_(world_size), hub_(std::make_shared<InProcessHub>(world_size)) {}

InProcessGroup::~InProcessGroup() = default;

std::unique_ptr<Communicator> InProcessGroup::Join(int rank, Duration operation_timeout) {
  MUSTER_CHECK(rank >= 0 && rank < world_size_, "no such rank in this group");
  return std::make_unique<RingCommunicator>(std::make_unique<InProcessConnector>(hub_, rank),
                                            operation_timeout);
}

void InProcessGroup::Kill(int rank) {
  std::lock_guard lock(hub_->mutex_);
  if (const auto place = hub_->places_.find(rank); place != hub_->places_.end()) {
    hub_->Cut(*place->second, rank);
    hub_->places_.erase(place);
  } else {
    ++hub_->epochs_[static_cast<std::size_t>(rank)];
  }
  hub_->changed_.notify_all();
}

}  // namespace muster
