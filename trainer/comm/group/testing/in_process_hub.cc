#include "trainer/comm/group/testing/in_process_hub.h"

#include <cstring>
#include <optional>

namespace muster {
namespace {

// A block on its way from left to right; lives in the sender's link until it was taken.
struct Block {
  const void* data;
  std::size_t bytes;
  bool taken = false;
};

struct Edge {
  std::deque<std::shared_ptr<Block>> blocks;
  bool cut = false;  // one side is gone
};

}  // namespace

struct InProcessHub::Circle {
  explicit Circle(int ranks)
      : edges(static_cast<std::size_t>(ranks)), news(edges.size()), gone(edges.size()) {}
  int size() const { return static_cast<int>(edges.size()); }
  Edge& Right(int rank) { return edges[static_cast<std::size_t>(rank)]; }
  Edge& Left(int rank) { return Right((rank + size() - 1) % size()); }

  int joined = 0;
  // For rings: edges[r] leads from rank r to its right neighbour.
  std::vector<Edge> edges;
  // For shared memory: what was mapped, in order, and who hears news of peers.
  std::vector<std::shared_ptr<const UniqueFd>> files;  // of memory that all ranks map
  std::vector<SharedLink::News> news;
  std::vector<std::optional<Status>> gone;
};

class InProcessHub::Ring final : public RingLink {
 public:
  Ring(std::shared_ptr<InProcessHub> hub, std::shared_ptr<Circle> circle, int rank)
      : hub_(std::move(hub)), circle_(std::move(circle)), rank_(rank) {}

  ~Ring() override { Close(); }

  Status PostSend(const void* data, std::size_t bytes) override {
    std::lock_guard lock(hub_->mutex_);
    auto block = std::make_shared<Block>(Block{data, bytes});
    sends_.push_back(block);
    circle_->Right(rank_).blocks.push_back(std::move(block));
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
    const Edge& edge = circle_->Right(rank_);
    MUSTER_RETURN_IF_ERROR(WaitFor(
        lock, deadline, edge, [&] { return block->taken; }, (rank_ + 1) % circle_->size()));
    sends_.pop_front();
    return OkStatus();
  }

  Status WaitReceive(Deadline deadline) override {
    std::unique_lock lock(hub_->mutex_);
    Edge& edge = circle_->Left(rank_);
    MUSTER_RETURN_IF_ERROR(WaitFor(
        lock, deadline, edge, [&] { return !edge.blocks.empty(); },
        (rank_ + circle_->size() - 1) % circle_->size()));
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

  // Only blocks that were not taken yet still point into this rank's memory.
  void Drop() override {
    std::lock_guard lock(hub_->mutex_);
    circle_->Right(rank_).blocks.clear();
    sends_.clear();
    receives_.clear();
  }

  void Close() override {
    std::lock_guard lock(hub_->mutex_);
    closed_ = true;
    hub_->Cut(*circle_, rank_, OkStatus());
  }

 private:
  template <typename Ready>
  Status WaitFor(std::unique_lock<std::mutex>& lock, Deadline deadline, const Edge& edge,
                 Ready ready, int peer) {
    const bool woken = hub_->changed_.wait_until(lock, deadline.when(),
                                                 [&] { return closed_ || ready() || edge.cut; });
    if (!woken) return DeadlineExceeded("rank " + std::to_string(peer) + " did not answer in time");
    if (closed_) return Cancelled("the communicator was aborted");
    if (!ready()) return Unavailable("rank " + std::to_string(peer) + " is gone");
    return OkStatus();
  }

  const std::shared_ptr<InProcessHub> hub_;
  const std::shared_ptr<Circle> circle_;
  const int rank_;
  bool closed_ = false;
  std::deque<std::shared_ptr<Block>> sends_;
  std::deque<std::pair<void*, std::size_t>> receives_;
};

class InProcessHub::Shared final : public SharedLink {
 public:
  Shared(std::shared_ptr<InProcessHub> hub, std::shared_ptr<Circle> circle, int rank)
      : hub_(std::move(hub)), circle_(std::move(circle)), rank_(rank) {}

  ~Shared() override {
    std::lock_guard lock(hub_->mutex_);
    Mine() = nullptr;
    hub_->Cut(*circle_, rank_, OkStatus());
  }

  void Listen(News news) override {
    std::lock_guard lock(hub_->mutex_);
    for (int peer = 0; peer < circle_->size(); ++peer) {
      const auto& gone = circle_->gone[static_cast<std::size_t>(peer)];
      if (gone) news(peer, *gone);
    }
    Mine() = std::move(news);
  }

  Result<SharedMemory> Map(std::size_t bytes, int kept, Deadline deadline) override {
    std::unique_lock lock(hub_->mutex_);
    const std::size_t number = mapped_++;
    if (rank_ == 0 && !stopped_) {
      MUSTER_ASSIGN_OR_RETURN(UniqueFd made,
                              kept >= 0 ? KeptMemoryFile(kept, bytes) : MakeMemoryFile(bytes));
      circle_->files.push_back(std::make_shared<const UniqueFd>(std::move(made)));
      hub_->changed_.notify_all();
    }
    const auto& gone = circle_->gone[0];
    const bool woken = hub_->changed_.wait_until(
        lock, deadline.when(), [&] { return stopped_ || number < circle_->files.size() || gone; });
    if (stopped_) return Cancelled("the communicator was aborted");
    if (!woken) return DeadlineExceeded("rank 0 did not hand out shared memory in time");
    if (number >= circle_->files.size()) return Unavailable("rank 0 is gone");
    const std::shared_ptr<const UniqueFd> file = circle_->files[number];
    MUSTER_ASSIGN_OR_RETURN(auto data, MapDescriptor(file->get(), bytes));
    return SharedMemory{std::move(data), file};
  }

  void Alarm(const Status& reason) override {
    std::lock_guard lock(hub_->mutex_);
    hub_->Cut(*circle_, rank_,
              Unavailable("lost rank " + std::to_string(rank_) +
                          ": it gave up its generation: " + reason.message()));
  }

  void Stop() override {
    std::lock_guard lock(hub_->mutex_);
    stopped_ = true;
    hub_->changed_.notify_all();
  }

 private:
  News& Mine() { return circle_->news[static_cast<std::size_t>(rank_)]; }

  const std::shared_ptr<InProcessHub> hub_;
  const std::shared_ptr<Circle> circle_;
  const int rank_;
  std::size_t mapped_ = 0;
  bool stopped_ = false;
};

InProcessHub::InProcessHub(int size)
    : epochs_(static_cast<std::size_t>(size)), cancelled_(static_cast<std::size_t>(size)) {}

InProcessHub::~InProcessHub() = default;

void InProcessHub::Cut(Circle& circle, int rank, const Status& why) {
  std::optional<Status>& gone = circle.gone[static_cast<std::size_t>(rank)];
  if (gone) return;
  gone = why;
  circle.Right(rank).cut = true;
  circle.Left(rank).cut = true;
  for (std::size_t peer = 0; peer < circle.news.size(); ++peer) {
    if (static_cast<int>(peer) != rank && circle.news[peer]) circle.news[peer](rank, why);
  }
  changed_.notify_all();
}

Result<std::shared_ptr<InProcessHub::Circle>> InProcessHub::Join(int world_rank, const Group& group,
                                                                 Deadline deadline) {
  std::unique_lock lock(mutex_);
  auto& circle = circles_[{group.generation, group.name}];
  if (!circle) circle = std::make_shared<Circle>(group.size);
  const auto mine = circle;
  const auto index = static_cast<std::size_t>(world_rank);
  const std::uint64_t epoch = epochs_[index];
  const auto killed = [&] { return epochs_[index] != epoch; };
  ++mine->joined;
  changed_.notify_all();
  const bool woken = changed_.wait_until(lock, deadline.when(), [&] {
    return cancelled_[index] || killed() || mine->joined == mine->size();
  });
  if (cancelled_[index] || killed() || !woken) --mine->joined;
  if (cancelled_[index]) return Cancelled("forming the gang was aborted");
  if (killed()) return Unavailable("this rank was killed");
  if (!woken) return DeadlineExceeded("not all ranks of the gang came in time");
  places_[world_rank].emplace_back(mine, group.rank);
  return mine;
}

void InProcessHub::SetCancelled(int world_rank, bool cancelled) {
  std::lock_guard lock(mutex_);
  cancelled_[static_cast<std::size_t>(world_rank)] = cancelled;
  changed_.notify_all();
}

std::unique_ptr<RingLink> InProcessHub::MakeRingLink(std::shared_ptr<Circle> circle, int rank) {
  return std::make_unique<Ring>(shared_from_this(), std::move(circle), rank);
}

std::unique_ptr<SharedLink> InProcessHub::MakeSharedLink(std::shared_ptr<Circle> circle, int rank) {
  return std::make_unique<Shared>(shared_from_this(), std::move(circle), rank);
}

void InProcessHub::Kill(int world_rank) {
  std::lock_guard lock(mutex_);
  const auto places = std::exchange(places_[world_rank], {});
  for (const auto& [circle, rank] : places) {
    const Status gone = Unavailable("rank " + std::to_string(rank) + " is gone");
    // The killed rank's own operations end too.
    if (auto& own = circle->news[static_cast<std::size_t>(rank)]) own(rank, gone);
    Cut(*circle, rank, gone);
  }
  if (places.empty()) ++epochs_[static_cast<std::size_t>(world_rank)];
  changed_.notify_all();
}

}  // namespace muster
