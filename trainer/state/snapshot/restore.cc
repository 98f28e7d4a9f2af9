#include "trainer/state/snapshot/restore.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "trainer/state/checkpoint/shard_header.h"
#include "trainer/state/snapshot/shard_filler.h"

namespace muster {
namespace {

constexpr std::int64_t kPieceBytes = 8 << 20;

class Restorer {
 public:
  Restorer(Communicator& communicator, const Cut& cut, const std::vector<const Segment*>& segments,
           const std::vector<ShardArray>& arrays, const RestoreOptions& options)
      : communicator_(communicator),
        cut_(cut),
        segments_(segments),
        options_(options),
        filler_(arrays, options.memory) {}

  Result<RestoreOutcome> Run() {
    MUSTER_RETURN_IF_ERROR(ShareCursor());
    if (!options_.in_place) FillFromHere();
    outcome_.local_bytes = filler_.bytes_taken();
    MUSTER_RETURN_IF_ERROR(ShareMissing());
    if (!options_.in_place && !filler_.complete()) {
      Fail(DataLoss("the snapshot of step " + std::to_string(cut_.state.step) +
                    " does not hold all that this job's state is made of"));
    }
    MUSTER_RETURN_IF_ERROR(Agree());
    return std::move(outcome_);
  }

 private:
  int shard_count() const { return cut_.state.shard_count; }
  // A shard that this rank provides or could provide.
  HeldShard Held(int shard) const { return FindShard(segments_, cut_.state, shard); }
  bool incomplete() const { return !options_.in_place && !filler_.complete(); }
  // This rank goes on taking part, so that no other rank waits for it.
  void Fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }

  // The same on all ranks, as the provider of the first shard has it; the labels that others hold
  // must say the same.
  Status ShareCursor() {
    ShardHeader header;
    if (cut_.providers[0] == communicator_.rank()) {
      const HeldShard held = Held(0);
      Result<TrainCursor> cursor = held.segment->Cursor(held.slot, cut_.state.step);
      if (cursor.ok()) {
        header.cursor = *cursor;
      } else {
        Fail(cursor.status());
      }
    }
    MUSTER_RETURN_IF_ERROR(ShareHeader(cut_.providers[0], 0, &header));
    outcome_.cursor = header.cursor;
    for (int shard = 0; shard < shard_count(); ++shard) {
      const HeldShard held = Held(shard);
      if (held.segment == nullptr) continue;
      const Result<TrainCursor> cursor = held.segment->Cursor(held.slot, cut_.state.step);
      if (!cursor.ok()) {
        Fail(cursor.status());
      } else if (!(*cursor == outcome_.cursor)) {
        Fail(DataLoss("the snapshots of step " + std::to_string(cut_.state.step) +
                      " stand at different places in the data"));
      }
    }
    return OkStatus();
  }

  void FillFromHere() {
    for (int shard = 0; shard < shard_count(); ++shard) {
      const HeldShard held = Held(shard);
      if (held.segment == nullptr) continue;
      for (const ShardArray& array : held.segment->Arrays(held.slot)) {
        Status taken = filler_.Take(array, 0, array.count, array.data);
        if (!taken.ok()) Fail(std::move(taken));
      }
    }
  }

  // All ranks that are still incomplete look at the shards that some rank cannot read, and those
  // that some rank wants are sent.
  Status ShareMissing() {
    std::vector<std::int64_t> lacking(static_cast<std::size_t>(shard_count()));
    for (int shard = 0; shard < shard_count(); ++shard) {
      lacking[shard] = incomplete() && Held(shard).segment == nullptr ? 1 : 0;
    }
    MUSTER_RETURN_IF_ERROR(MaxOverRanks(&lacking));
    std::vector<std::int64_t> wanted(lacking.size());
    std::vector<std::vector<ShardArray>> directories(lacking.size());
    for (int shard = 0; shard < shard_count(); ++shard) {
      if (lacking[shard] == 0) continue;
      ShardHeader header;
      std::uint64_t slot_bytes = 0;
      if (const HeldShard held = Held(shard); cut_.providers[shard] == communicator_.rank()) {
        header.arrays = held.segment->spec().arrays;
        slot_bytes = held.segment->slot_bytes();
      }
      MUSTER_RETURN_IF_ERROR(ShareHeader(cut_.providers[shard], slot_bytes, &header));
      directories[shard] = std::move(header.arrays);
      const bool wants =
          std::any_of(directories[shard].begin(), directories[shard].end(),
                      [this](const ShardArray& array) { return filler_.Wants(array); });
      wanted[shard] = wants && incomplete() && Held(shard).segment == nullptr ? 1 : 0;
    }
    MUSTER_RETURN_IF_ERROR(MaxOverRanks(&wanted));
    for (int shard = 0; shard < shard_count(); ++shard) {
      if (wanted[shard] != 0) MUSTER_RETURN_IF_ERROR(ShareShard(shard, directories[shard]));
    }
    return OkStatus();
  }

  Status ShareShard(int shard, std::vector<ShardArray> arrays) {
    const int root = cut_.providers[shard];
    const bool sends = root == communicator_.rank();
    const HeldShard held = Held(shard);
    const bool takes = !options_.in_place && held.segment == nullptr;
    if (sends) arrays = held.segment->Arrays(held.slot);
    std::vector<std::byte> buffer(sends ? 0 : static_cast<std::size_t>(kPieceBytes));
    for (const ShardArray& array : arrays) {
      const auto size = static_cast<std::int64_t>(ElementSize(array.type));
      for (std::int64_t at = 0; at < array.count; at += kPieceBytes / size) {
        const std::int64_t count = std::min(array.count - at, kPieceBytes / size);
        const auto bytes = static_cast<std::size_t>(count * size);
        void* piece = sends ? static_cast<std::byte*>(array.data) + at * size : buffer.data();
        MUSTER_RETURN_IF_ERROR(communicator_.Broadcast(piece, bytes, root)->Wait());
        outcome_.sent_bytes += static_cast<std::int64_t>(bytes);
        if (!takes || !status_.ok()) continue;
        Status taken = filler_.Take(array, at, count, piece);
        if (!taken.ok()) Fail(std::move(taken));
      }
    }
    return OkStatus();
  }

  // From `root` to all; `slot_bytes` is the root's.
  Status ShareHeader(int root, std::uint64_t slot_bytes, ShardHeader* header) {
    std::string text;
    if (communicator_.rank() == root) text = ShardHeaderToJson(*header);
    std::uint64_t lengths[2] = {text.size(), slot_bytes};
    MUSTER_RETURN_IF_ERROR(communicator_.Broadcast(lengths, sizeof lengths, root)->Wait());
    text.resize(lengths[0]);
    MUSTER_RETURN_IF_ERROR(communicator_.Broadcast(text.data(), text.size(), root)->Wait());
    Result<DecodedShardHeader> decoded =
        ShardHeaderFromJson(text, ShardFrame{.data_bytes = lengths[1]});
    if (decoded.ok()) {
      *header = std::move(decoded->header);
    } else {
      *header = {};
      Fail(decoded.status());
    }
    return OkStatus();
  }

  Status MaxOverRanks(std::vector<std::int64_t>* values) {
    return communicator_
        .AllReduce(values->data(), values->size(), ElementType::kInt64, ReduceOp::kMax)
        ->Wait();
  }

  Status Agree() {
    std::vector<std::int64_t> failed = {status_.ok() ? 0 : 1};
    MUSTER_RETURN_IF_ERROR(MaxOverRanks(&failed));
    if (failed[0] == 0 || !status_.ok()) return status_;
    return FailedPrecondition("another rank could not restore the snapshot of step " +
                              std::to_string(cut_.state.step) + "; see its log");
  }

  Communicator& communicator_;
  const Cut& cut_;
  const std::vector<const Segment*>& segments_;
  const RestoreOptions& options_;
  ShardFiller filler_;
  RestoreOutcome outcome_;
  Status status_;
};

}  // namespace

bool IsInPlace(const Segment& segment, const SegmentSpec& plan, const Cut& cut) {
  return segment.writable() && SameShard(segment.spec(), plan) &&
         segment.Find(cut.state).has_value();
}

Result<RestoreOutcome> RestoreCut(Communicator& communicator, const Cut& cut,
                                  const std::vector<const Segment*>& segments,
                                  const std::vector<ShardArray>& arrays,
                                  const RestoreOptions& options) {
  return Restorer(communicator, cut, segments, arrays, options).Run();
}

}  // namespace muster
