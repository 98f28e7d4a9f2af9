#include "trainer/state/snapshot/buddy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "common/base/check.h"
#include "common/base/proc_reader.h"
#include "trainer/state/checkpoint/shard_header.h"

namespace muster {
namespace {

constexpr Duration kSplitTimeout = std::chrono::minutes(5);

// What a rank sends to the next one about its segment.
struct Introduction {
  std::array<char, 96> host;  // boot id, pid namespace, user; empty: not known
  std::int64_t pid;
  std::int64_t fd;
  std::uint64_t device;  // of the memory file
  std::uint64_t inode;
  std::uint64_t slot_bytes;
  std::uint64_t layout;
};

std::string HostIdentity() {
  struct stat info {};
  const std::string boot = BootId();
  if (boot.empty() || ::stat("/proc/self/ns/pid", &info) != 0) return "";
  return boot + "/" + std::to_string(info.st_ino) + "/" + std::to_string(::geteuid());
}

Introduction IntroductionOf(const Segment& segment) {
  Introduction said{};
  struct stat info {};
  if (::fstat(segment.fd(), &info) == 0) {
    const std::string host = HostIdentity();
    if (host.size() < said.host.size()) std::copy(host.begin(), host.end(), said.host.begin());
  }
  said.pid = ::getpid();
  said.fd = segment.fd();
  said.device = info.st_dev;
  said.inode = info.st_ino;
  said.slot_bytes = segment.slot_bytes();
  said.layout = segment.spec().layout;
  return said;
}

// The memory file of another process of this host, to be read.
Result<std::unique_ptr<Segment>> OpenOfPeer(const Introduction& peer) {
  const std::string path = "/proc/" + std::to_string(peer.pid) + "/fd/" + std::to_string(peer.fd);
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat " + path);
  if (info.st_dev != peer.device || info.st_ino != peer.inode) {
    return NotFound(path + " is another file by now");
  }
  return Segment::Map(std::move(fd), Segment::Access::kReadOnly);
}

std::vector<int> RingOfNodes(const BuddyOptions& options, int world_size) {
  if (!options.ring.empty()) return options.ring;
  std::vector<int> nodes(
      static_cast<std::size_t>(world_size / std::max(1, options.ranks_per_node)));
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

// A digest of 62 bits, so that it has a negative.
std::int64_t Digest(const std::vector<int>& ring) {
  std::uint64_t digest = ring.size();
  for (const int node : ring) digest = digest * 0x9e3779b97f4a7c15u + static_cast<unsigned>(node);
  return static_cast<std::int64_t>(digest >> 2);
}

Status MaxOver(Communicator& group, std::int64_t* value) {
  return group.AllReduce(value, 1, ElementType::kInt64, ReduceOp::kMax)->Wait();
}

}  // namespace

bool WantsBuddy(const BuddyOptions& options, int world_size) {
  const int per_node = options.ranks_per_node;
  if (per_node < 1 || world_size % per_node != 0 || world_size == per_node) return false;
  return options.wanted == BuddyCopies::kOn ||
         (options.wanted == BuddyCopies::kAuto && options.replicas == 1);
}

Result<std::unique_ptr<Buddy>> Buddy::Create(Communicator& world, const Segment& own,
                                             const BuddyOptions& options,
                                             std::vector<std::unique_ptr<Segment>>* held) {
  // Rings that each rank imagines otherwise would never meet.
  const bool wants = WantsBuddy(options, world.size());
  const std::vector<int> ring = RingOfNodes(options, world.size());
  std::vector<std::int64_t> extremes = {wants ? options.ranks_per_node : 0, Digest(ring)};
  for (const std::size_t i : {0, 1}) extremes.push_back(-extremes[i]);
  MUSTER_RETURN_IF_ERROR(
      world.AllReduce(extremes.data(), extremes.size(), ElementType::kInt64, ReduceOp::kMax)
          ->Wait());
  if (extremes[0] != -extremes[2] || extremes[1] != -extremes[3] || !wants) {
    return std::unique_ptr<Buddy>();
  }

  std::unique_ptr<Buddy> buddy(new Buddy);
  buddy->own_ = &own;
  std::vector<int> members;
  const int local = world.rank() % options.ranks_per_node;
  for (const int node : ring) members.push_back(node * options.ranks_per_node + local);
  MUSTER_ASSIGN_OR_RETURN(buddy->ring_,
                          world.Split("buddy", members, Deadline::After(kSplitTimeout)));
  const Introduction said = IntroductionOf(own);
  Introduction heard{};
  MUSTER_RETURN_IF_ERROR(buddy->ring_->RingSendRecv(&said, &heard, sizeof said)->Wait());
  if (heard.slot_bytes != said.slot_bytes || heard.layout != said.layout) {
    return Internal("the ranks of a buddy ring have shards of different kinds");
  }
  std::int64_t must_copy = 1;
  if (!options.force_copy && said.host[0] != 0 && said.host == heard.host) {
    Result<std::unique_ptr<Segment>> opened = OpenOfPeer(heard);
    if (opened.ok()) {
      buddy->kept_ = *std::move(opened);
      must_copy = 0;
    }
  }
  MUSTER_RETURN_IF_ERROR(MaxOver(*buddy->ring_, &must_copy));
  if (must_copy == 0) {
    buddy->ring_.reset();
  } else {
    MUSTER_RETURN_IF_ERROR(buddy->KeepCopy(options, held));
  }
  return buddy;
}

Status Buddy::KeepCopy(const BuddyOptions& options, std::vector<std::unique_ptr<Segment>>* held) {
  MUSTER_ASSIGN_OR_RETURN(SegmentSpec spec, ReceiveSpec());
  for (std::unique_ptr<Segment>& each : *held) {
    if (!each->writable() || !SameShard(each->spec(), spec)) continue;
    kept_ = std::move(each);
    held->erase(held->begin() + (&each - held->data()));
    if (options.from) {
      kept_->Continue(options.generation, *options.from);
    } else {
      kept_->Begin(options.generation);
    }
    return OkStatus();
  }
  spec.name = options.name;
  MUSTER_ASSIGN_OR_RETURN(kept_, Segment::Create(std::move(spec), options.generation));
  return OkStatus();
}

// The spec of the segment of the rank before this one.
Result<SegmentSpec> Buddy::ReceiveSpec() {
  const SegmentSpec& own = own_->spec();
  const std::string said = ShardHeaderToJson({.rank = own.shard_index,
                                              .world_size = own.shard_count,
                                              .adapter = own.adapter,
                                              .arrays = own.arrays});
  auto bytes = static_cast<std::int64_t>(said.size());
  MUSTER_RETURN_IF_ERROR(MaxOver(*ring_, &bytes));
  // JSON may end with spaces.
  std::string padded = said;
  padded.resize(static_cast<std::size_t>(bytes), ' ');
  std::string heard(padded.size(), ' ');
  MUSTER_RETURN_IF_ERROR(ring_->RingSendRecv(padded.data(), heard.data(), heard.size())->Wait());
  MUSTER_ASSIGN_OR_RETURN(DecodedShardHeader decoded,
                          ShardHeaderFromJson(heard, ShardFrame{.data_bytes = own_->slot_bytes()}));
  return SegmentSpec{.shard_index = decoded.header.rank,
                     .shard_count = decoded.header.world_size,
                     .layout = own.layout,
                     .arrays = std::move(decoded.header.arrays),
                     .adapter = std::move(decoded.header.adapter)};
}

Buddy::~Buddy() {
  if (copy_ != nullptr) (void)copy_->Wait();
}

void Buddy::Start(int slot, const TrainCursor& cursor, bool changed) {
  if (!copies()) return;
  MUSTER_CHECK(!arriving_, "a buddy copy begins before the one before it has ended");
  arriving_ = cursor;
  arriving_slot_ = kept_->NewestSlot();
  if (!changed && kept_->NewestStep() >= 0) return;
  // The newest copy stays whole until this one is.
  if (kept_->NewestStep() >= 0) arriving_slot_ = kept_->FreeSlot(arriving_slot_);
  kept_->Unseal(arriving_slot_);
  copy_ = ring_->RingSendRecv(own_->slot(slot), kept_->slot(arriving_slot_), own_->slot_bytes());
}

Status Buddy::Finish() {
  const std::optional<TrainCursor> arriving = std::exchange(arriving_, std::nullopt);
  if (copy_ != nullptr) {
    const std::unique_ptr<Work> copy = std::move(copy_);
    MUSTER_RETURN_IF_ERROR(copy->Wait());
  }
  if (arriving) kept_->Seal(arriving_slot_, *arriving);
  return OkStatus();
}

}  // namespace muster
