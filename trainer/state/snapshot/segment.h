// Segment: one shard of the training state in shared memory, in slots, so that it outlives its
// process.
//
// A segment is a memory file. A process that holds a descriptor of it holds the state: the rank
// that made it, its guardian, its worker, a buddy. It says what shard of which state it is, and
// each of its slots holds the shard's arrays, laid out as in a checkpoint's file. A slot is sealed
// by a label: the step whose state the arrays are, and the cursor that belongs to it. Sealing is
// one store, and a kill at any moment leaves the label there whole or not at all. A slot has two
// labels, since a step that changes no weights leaves two steps with the same arrays; the older one
// stays until every rank has the newer one.
//
// Training alternates between two slots. While a checkpoint is written from one (Hold), it uses the
// third, which takes no memory before that.
//
// The history says which course of training the labels belong to (docs/recovery.md, Lineage). Each
// forming of the gang begins a lineage of its own; one that goes on from step s of another is its
// child, and labels up to s belong to both, so that shards of ranks that were replaced and of ranks
// that were not still make one state.
//
// Owned by the code that mapped it; unmapped with the object, while the memory stays as long as a
// process holds a descriptor or a mapping. One thread labels, the trainer's; slots without a label
// are written by the code that they are handed to. Readers in other processes read when the writer
// is gone or has said that it waits. Errors: kResourceExhausted when there is no memory, kDataLoss
// for a segment that is damaged or none.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/ids.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"
#include "trainer/state/checkpoint/adapter_origin.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/checkpoint/shard_image.h"

namespace muster {

inline constexpr int kSegmentSlots = 3;
// Those that are in use while none is held.
inline constexpr int kTrainingSlots = 2;

// What a segment is made for.
struct SegmentSpec {
  std::string name;  // says who made it for what; unique within the job
  int shard_index = 0;
  int shard_count = 1;
  // Of how the whole state is cut up; equal on all ranks of one state (state_plan.h).
  std::uint64_t layout = 0;
  std::vector<ShardArray> arrays;             // data is not looked at
  std::optional<AdapterOrigin> adapter = {};  // what the state belongs to; nothing: a whole model
};

// Whether both are for one shard of equally cut states, so that one can take the other's place.
bool SameShard(const SegmentSpec& a, const SegmentSpec& b);

// One state: a step of one course of training, cut into so many shards.
struct StateId {
  Generation lineage = 0;
  Step step = -1;
  int shard_count = 0;
  std::uint64_t layout = 0;

  friend bool operator==(const StateId&, const StateId&) = default;
};

struct SegmentHistory {
  Generation lineage = 0;  // the generation that trains, or trained, in it
  Generation parent = 0;   // whose state it began with; 0: it began with none
  Step parent_step = -1;   // the step of that state

  // Whether a label of `step` belongs to `of`.
  bool Covers(Generation of, Step step) const {
    return (of == lineage && step >= parent_step) ||
           (parent != 0 && of == parent && step <= parent_step);
  }
  friend bool operator==(const SegmentHistory&, const SegmentHistory&) = default;
};

class Segment {
 public:
  enum class Access { kReadOnly, kReadWrite };

  // Made and zeroed, without a label. The pages of the training slots are touched by a thread in
  // the background, so that the first steps need not, and become huge pages some seconds later;
  // `touch` false: by the first writer.
  static Result<std::unique_ptr<Segment>> Create(SegmentSpec spec, Generation lineage,
                                                 bool touch = true);
  // Maps what Create has made, here or in another process, and trusts nothing in it.
  static Result<std::unique_ptr<Segment>> Map(UniqueFd fd, Access access);
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const SegmentSpec& spec() const { return spec_; }
  int fd() const { return fd_.get(); }
  bool writable() const { return access_ == Access::kReadWrite; }
  // The bytes of one slot; SlotBytes says how many a segment for such arrays would have.
  std::size_t slot_bytes() const { return slot_bytes_; }
  static std::size_t SlotBytes(const std::vector<ShardArray>& arrays);
  std::byte* slot(int slot) const;
  // The arrays of the spec with their places in a slot.
  std::vector<ShardArray> Arrays(int slot) const;

  SegmentHistory history() const;
  // Training begins anew: nothing in it counts any more.
  void Begin(Generation lineage);
  // Training goes on from `from`, which this segment holds or has missed: what it has of later
  // steps counts no more. A segment of another lineage begins anew.
  void Continue(Generation lineage, const StateId& from);

  // The steps that the slot is labelled with, ascending.
  std::vector<Step> Labels(int slot) const;
  // The slot that holds this state; nothing when none does.
  std::optional<int> Find(const StateId& state) const;
  // The slot with the newest label; 0 when there is none.
  int NewestSlot() const;
  // A slot to write a state to: neither held nor `beside`, which the caller goes on needing.
  int FreeSlot(std::optional<int> beside = {}) const;
  // The newest label; -1: none.
  Step NewestStep() const;
  // kDataLoss when no label of `slot` has the step, or its cursor is not understood.
  Result<TrainCursor> Cursor(int slot, Step step) const;

  // The slot's arrays are the state of cursor.step. Replaces the older of its labels.
  void Seal(int slot, const TrainCursor& cursor);
  // Before a slot is written to.
  void Unseal(int slot);

  // Keeps a slot as it is while a checkpoint is written from it: FreeSlot is another one. What is
  // returned is intact until the slot is unsealed all the same, which Begin does, or a process that
  // trains in the segment after this one. One slot is held at a time. It may outlive the segment,
  // and end in any thread.
  SealedShard Hold(int slot);
  // Has the memory ready that training needs while a slot is held. Returns at once.
  void PrepareHold();

 private:
  struct Header;
  struct Label;
  struct Mapping;

  Segment(UniqueFd fd, Access access) : fd_(std::move(fd)), access_(access) {}
  static Result<std::unique_ptr<Segment>> MapFile(UniqueFd fd, Access access);
  void WriteHeader(const SegmentSpec& spec, const std::string& directory, Generation lineage);
  Status ReadHeader();
  Status ReadDirectory(const std::string& text);
  void TouchInBackground(int first_slot, int slots);
  bool SameShards(const StateId& state) const;
  Label& label(int slot, int index) const;
  Step NewestOf(int slot) const;
  void SetHistory(const SegmentHistory& history);

  UniqueFd fd_;
  const Access access_;
  SegmentSpec spec_;
  std::shared_ptr<Mapping> mapping_;
  Header* header_ = nullptr;  // where the file is mapped
  std::uint64_t file_bytes_ = 0;
  std::uint64_t slot_offset_ = 0;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t slot_stride_ = 0;
  std::vector<std::uint64_t> array_offsets_;  // within a slot
  std::vector<std::jthread> touchers_;        // end first
};

}  // namespace muster
