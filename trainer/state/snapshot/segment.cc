#include "trainer/state/snapshot/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <stop_token>
#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/json.h"
#include "common/base/round_up.h"
#include "common/base/version_table.h"
#include "trainer/state/checkpoint/cursor_json.h"
#include "trainer/state/checkpoint/shard_header.h"

namespace muster {
namespace {

constexpr std::uint64_t kMagic = 0x31474553534d5553;  // "SUMSSEG1"
constexpr std::uint64_t kDirectoryOffset = 8192;
constexpr std::uint64_t kMaxDirectoryBytes = 256 << 20;
// A huge page.
constexpr std::uint64_t kSlotAlignment = 2 << 20;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kTouchBytes = 64 << 20;
constexpr int kLabels = 2;
constexpr Step kNoStep = -1;
constexpr int kNoSlot = -1;
// Since Linux 5.14 and 6.1; older headers lack the names and older kernels refuse the advice.
constexpr int kPopulateWrite = 23;
constexpr int kCollapse = 25;
// Huge pages come so long after small ones: a huge page takes memory that nothing has used for
// long, which is dear, and a gang that recovers waits for its first steps.
constexpr std::chrono::seconds kFirstSteps(2);

// At a multiple of a huge page, as the slots are in the file: else no huge page could show them.
// MAP_FAILED with errno on failure.
void* MapAligned(int fd, std::uint64_t bytes, int protection) {
  const std::uint64_t room = bytes + kSlotAlignment;
  void* reserved =
      ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return MAP_FAILED;
  auto* begin = static_cast<std::byte*>(reserved);
  const auto address = reinterpret_cast<std::uintptr_t>(reserved);
  std::byte* aligned = begin + (RoundUp(address, kSlotAlignment) - address);
  void* mapped = ::mmap(aligned, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::munmap(reserved, room);
    errno = error;
    return MAP_FAILED;
  }
  if (aligned > begin) ::munmap(begin, static_cast<std::size_t>(aligned - begin));
  const auto end = RoundUp(bytes, kPageBytes);
  if (begin + room > aligned + end) {
    ::munmap(aligned + end, static_cast<std::size_t>(begin + room - (aligned + end)));
  }
  return mapped;
}

Status Damaged(const std::string& why) { return DataLoss("a snapshot segment " + why); }

}  // namespace

bool SameShard(const SegmentSpec& a, const SegmentSpec& b) {
  const auto same = [](const ShardArray& x, const ShardArray& y) {
    return x.name == y.name && x.type == y.type && x.count == y.count && x.intervals == y.intervals;
  };
  return a.shard_index == b.shard_index && a.shard_count == b.shard_count && a.layout == b.layout &&
         std::equal(a.arrays.begin(), a.arrays.end(), b.arrays.begin(), b.arrays.end(), same);
}

struct Segment::Label {
  std::atomic<Step> step;
  std::uint32_t cursor_bytes;
  std::array<char, 1012> cursor;
};

struct Segment::Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t reserved;
  std::uint64_t directory_bytes;
  std::uint64_t directory_checksum;
  std::uint64_t layout;
  std::uint64_t slot_offset;
  std::uint64_t slot_bytes;
  std::uint64_t slot_stride;
  std::atomic<std::uint32_t> valid_history;
  alignas(8) SegmentHistory histories[2];
  std::atomic<std::uint64_t> given_up[kSegmentSlots];  // how often a slot was, to be written to
  alignas(256) Label labels[kSegmentSlots][kLabels];
};

// The mapped file; it ends with the segment and with what is held of it.
struct Segment::Mapping {
  void* memory = nullptr;
  std::size_t bytes = 0;
  std::atomic<int> held = kNoSlot;

  ~Mapping() { ::munmap(memory, bytes); }
};

std::size_t Segment::SlotBytes(const std::vector<ShardArray>& arrays) {
  return ShardFrame::Make(0, PlaceArrays(arrays).end).data_bytes;
}

Result<std::unique_ptr<Segment>> Segment::Create(SegmentSpec spec, Generation lineage, bool touch) {
  static_assert(sizeof(Label) == 1024 && sizeof(Header) <= kDirectoryOffset);
  static_assert(std::atomic<Step>::is_always_lock_free);
  const std::string directory = ShardHeaderToJson({.job_id = spec.name,
                                                   .generation = lineage,
                                                   .rank = spec.shard_index,
                                                   .world_size = spec.shard_count,
                                                   .adapter = spec.adapter,
                                                   .arrays = spec.arrays});
  MUSTER_CHECK(directory.size() <= kMaxDirectoryBytes, "a segment's directory is too long");
  const std::uint64_t slot_bytes = SlotBytes(spec.arrays);
  const std::uint64_t slot_stride = RoundUp(slot_bytes, kSlotAlignment);
  const std::uint64_t slot_offset = RoundUp(kDirectoryOffset + directory.size(), kSlotAlignment);

  UniqueFd fd(::memfd_create("muster-snapshot", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "make memory for a snapshot");
  if (::ftruncate(fd.get(), static_cast<off_t>(slot_offset + kSegmentSlots * slot_stride)) != 0 ||
      ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "size the memory for a snapshot");
  }
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment,
                          MapFile(std::move(fd), Access::kReadWrite));
  segment->slot_offset_ = slot_offset;
  segment->slot_bytes_ = slot_bytes;
  segment->slot_stride_ = slot_stride;
  segment->WriteHeader(spec, directory, lineage);
  MUSTER_RETURN_IF_ERROR(segment->ReadHeader());
  if (touch) segment->TouchInBackground(0, kTrainingSlots);
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::Map(UniqueFd fd, Access access) {
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Segment> segment, MapFile(std::move(fd), access));
  MUSTER_RETURN_IF_ERROR(segment->ReadHeader());
  return segment;
}

Result<std::unique_ptr<Segment>> Segment::MapFile(UniqueFd fd, Access access) {
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "stat of a snapshot segment");
  // What may shrink would end its readers by SIGBUS.
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return Damaged("is no sealed memory file");
  const auto bytes = static_cast<std::uint64_t>(info.st_size);
  if (bytes < kDirectoryOffset) return Damaged("is too short for its header");
  const int protection = access == Access::kReadWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* mapped = MapAligned(fd.get(), bytes, protection);
  if (mapped == MAP_FAILED) return ErrnoStatus(errno, "map a snapshot segment");
  (void)::madvise(mapped, bytes, MADV_HUGEPAGE);
  std::unique_ptr<Segment> segment(new Segment(std::move(fd), access));
  segment->mapping_ = std::make_shared<Mapping>();
  segment->mapping_->memory = mapped;
  segment->mapping_->bytes = bytes;
  segment->header_ = static_cast<Header*>(mapped);
  segment->file_bytes_ = bytes;
  return segment;
}

void Segment::WriteHeader(const SegmentSpec& spec, const std::string& directory,
                          Generation lineage) {
  Header& header = *header_;
  header.version = kSnapshotSegments.max;
  header.directory_bytes = directory.size();
  header.directory_checksum = XXH3_64bits(directory.data(), directory.size());
  header.layout = spec.layout;
  header.slot_offset = slot_offset_;
  header.slot_bytes = slot_bytes_;
  header.slot_stride = slot_stride_;
  std::memcpy(reinterpret_cast<char*>(header_) + kDirectoryOffset, directory.data(),
              directory.size());
  Begin(lineage);
  header.magic = kMagic;
}

Status Segment::ReadHeader() {
  const Header& header = *header_;
  if (header.magic != kMagic) return Damaged("has another magic number");
  if (!kSnapshotSegments.contains(static_cast<int>(header.version))) {
    return Damaged("has version " + std::to_string(header.version) + ", this program reads " +
                   RangeText(kSnapshotSegments));
  }
  const std::uint64_t directory_bytes = header.directory_bytes;
  slot_offset_ = header.slot_offset;
  slot_bytes_ = header.slot_bytes;
  slot_stride_ = header.slot_stride;
  if (directory_bytes > kMaxDirectoryBytes || slot_offset_ > file_bytes_ ||
      slot_offset_ < kDirectoryOffset + directory_bytes || slot_offset_ % kSlotAlignment != 0 ||
      slot_bytes_ > slot_stride_ || slot_stride_ % kSlotAlignment != 0 ||
      slot_stride_ > (file_bytes_ - slot_offset_) / kSegmentSlots) {
    return Damaged("has parts beyond its end");
  }
  if (header.valid_history.load(std::memory_order_acquire) > 1) return Damaged("has no history");
  const std::string directory(reinterpret_cast<const char*>(header_) + kDirectoryOffset,
                              directory_bytes);
  if (XXH3_64bits(directory.data(), directory.size()) != header.directory_checksum) {
    return Damaged("has a damaged directory");
  }
  spec_.layout = header.layout;
  return ReadDirectory(directory);
}

Status Segment::ReadDirectory(const std::string& text) {
  Result<DecodedShardHeader> decoded =
      ShardHeaderFromJson(text, ShardFrame{.data_bytes = slot_bytes_});
  if (!decoded.ok()) return decoded.status().WithContext("a snapshot segment's directory");
  ShardHeader& directory = decoded->header;
  if (directory.world_size < 1 || directory.rank < 0 || directory.rank >= directory.world_size) {
    return Damaged("says it is shard " + std::to_string(directory.rank) + " of " +
                   std::to_string(directory.world_size));
  }
  spec_.name = std::move(directory.job_id);
  spec_.shard_index = directory.rank;
  spec_.shard_count = directory.world_size;
  spec_.arrays = std::move(directory.arrays);
  spec_.adapter = std::move(directory.adapter);
  array_offsets_ = std::move(decoded->places.offsets);
  return OkStatus();
}

// Reading and writing go on meanwhile: the advice changes no byte. Memory files get huge pages by
// themselves only where the host is set up for it. The kernel refuses to make one of memory that
// has no page yet.
void Segment::TouchInBackground(int first_slot, int slots) {
  if (slot_bytes_ == 0) return;
  touchers_.emplace_back(
      [begin = slot(first_slot), all = slots * slot_stride_](const std::stop_token& stop) {
        for (std::uint64_t at = 0; at < all && !stop.stop_requested(); at += kTouchBytes) {
          if (::madvise(begin + at, std::min(kTouchBytes, all - at), kPopulateWrite) != 0) return;
        }
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any().wait_for(lock, stop, kFirstSteps, [] { return false; });
        for (std::uint64_t at = 0; at < all && !stop.stop_requested(); at += kSlotAlignment) {
          if (::madvise(begin + at, kSlotAlignment, kCollapse) != 0 && errno == EINVAL) return;
        }
      });
}

void Segment::PrepareHold() { TouchInBackground(kTrainingSlots, kSegmentSlots - kTrainingSlots); }

SealedShard Segment::Hold(int held_slot) {
  MUSTER_CHECK(mapping_->held.load() == kNoSlot, "one slot of a segment is held at a time");
  mapping_->held = held_slot;
  const auto end = [mapping = mapping_](const std::byte*) { mapping->held = kNoSlot; };
  return {.data = std::shared_ptr<const std::byte>(slot(held_slot), end),
          .bytes = slot_bytes_,
          .intact = [mapping = mapping_, &given_up = header_->given_up[held_slot],
                     before = header_->given_up[held_slot].load()] {
            return given_up.load() == before;
          }};
}

std::byte* Segment::slot(int slot) const {
  return reinterpret_cast<std::byte*>(header_) + slot_offset_ +
         static_cast<std::uint64_t>(slot) * slot_stride_;
}

std::vector<ShardArray> Segment::Arrays(int of_slot) const {
  std::vector<ShardArray> arrays = spec_.arrays;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    arrays[i].data = slot(of_slot) + array_offsets_[i];
  return arrays;
}

SegmentHistory Segment::history() const {
  return header_->histories[header_->valid_history.load(std::memory_order_acquire) & 1];
}

void Segment::SetHistory(const SegmentHistory& history) {
  const std::uint32_t other = 1 - (header_->valid_history.load(std::memory_order_relaxed) & 1);
  header_->histories[other] = history;
  header_->valid_history.store(other, std::memory_order_release);
}

void Segment::Begin(Generation lineage) {
  for (int each = 0; each < kSegmentSlots; ++each) Unseal(each);
  SetHistory({.lineage = lineage});
}

void Segment::Continue(Generation lineage, const StateId& from) {
  if (!SameShards(from) || !history().Covers(from.lineage, from.step)) {
    Begin(lineage);
    return;
  }
  for (int each = 0; each < kSegmentSlots; ++each) {
    for (int i = 0; i < kLabels; ++i) {
      std::atomic<Step>& step = label(each, i).step;
      if (step.load(std::memory_order_relaxed) > from.step) step.store(kNoStep);
    }
  }
  SetHistory({.lineage = lineage, .parent = from.lineage, .parent_step = from.step});
}

bool Segment::SameShards(const StateId& state) const {
  return state.shard_count == spec_.shard_count && state.layout == spec_.layout;
}

Segment::Label& Segment::label(int slot, int index) const { return header_->labels[slot][index]; }

std::vector<Step> Segment::Labels(int slot) const {
  std::vector<Step> steps;
  for (int i = 0; i < kLabels; ++i) {
    const Step step = label(slot, i).step.load(std::memory_order_acquire);
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::optional<int> Segment::Find(const StateId& state) const {
  if (!SameShards(state) || !history().Covers(state.lineage, state.step)) return std::nullopt;
  for (int each = 0; each < kSegmentSlots; ++each) {
    const std::vector<Step> steps = Labels(each);
    if (std::find(steps.begin(), steps.end(), state.step) != steps.end()) return each;
  }
  return std::nullopt;
}

Step Segment::NewestOf(int slot) const {
  const std::vector<Step> steps = Labels(slot);
  return steps.empty() ? kNoStep : steps.back();
}

int Segment::NewestSlot() const {
  int newest = 0;
  for (int each = 1; each < kSegmentSlots; ++each)
    if (NewestOf(each) > NewestOf(newest)) newest = each;
  return newest;
}

Step Segment::NewestStep() const { return NewestOf(NewestSlot()); }

int Segment::FreeSlot(std::optional<int> beside) const {
  const int held = mapping_->held;
  int free = 0;
  while (free == beside || free == held) ++free;
  return free;
}

Result<TrainCursor> Segment::Cursor(int slot, Step step) const {
  for (int i = 0; i < kLabels; ++i) {
    const Label& each = label(slot, i);
    if (step < 0 || each.step.load(std::memory_order_acquire) != step) continue;
    const auto bytes = std::min<std::size_t>(each.cursor_bytes, each.cursor.size());
    const std::string text(each.cursor.data(), bytes);
    try {
      TrainCursor cursor = CursorFromJson(nlohmann::json::parse(text));
      if (cursor.step == step) return cursor;
    } catch (const nlohmann::json::exception& error) {
      return Damaged("has a cursor that is not understood: " + std::string(error.what()));
    }
    return Damaged("has the cursor of another step");
  }
  return Damaged("has no step " + std::to_string(step));
}

void Segment::Seal(int slot, const TrainCursor& cursor) {
  Label* oldest = &label(slot, 0);
  for (int i = 0; i < kLabels; ++i) {
    Label& each = label(slot, i);
    if (each.step.load(std::memory_order_relaxed) == cursor.step) {
      oldest = &each;
      break;
    }
    if (each.step.load(std::memory_order_relaxed) < oldest->step.load(std::memory_order_relaxed)) {
      oldest = &each;
    }
  }
  const std::string text = CursorToJson(cursor).dump();
  MUSTER_CHECK(text.size() <= oldest->cursor.size(), "a cursor is too long for its label");
  const bool sealed = oldest->step.load(std::memory_order_relaxed) == cursor.step;
  if (sealed && text == std::string_view(oldest->cursor.data(), oldest->cursor_bytes)) return;
  oldest->step.store(kNoStep, std::memory_order_seq_cst);
  oldest->cursor_bytes = static_cast<std::uint32_t>(text.size());
  std::memcpy(oldest->cursor.data(), text.data(), text.size());
  // Behind all that was stored before: a reader that sees the step sees the state and the cursor.
  oldest->step.store(cursor.step, std::memory_order_seq_cst);
}

void Segment::Unseal(int slot) {
  header_->given_up[slot].fetch_add(1, std::memory_order_seq_cst);
  for (int i = 0; i < kLabels; ++i) label(slot, i).step.store(kNoStep, std::memory_order_seq_cst);
}

}  // namespace muster
