#include "trainer/state/checkpoint/sharded_state.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace muster {
namespace {

// Codes that speak about the file itself, not about a moment in which it could not be read.
bool IsLost(const Status& status) {
  return status.code() == StatusCode::kDataLoss || status.code() == StatusCode::kNotFound;
}

std::string Elements(std::int64_t begin, std::int64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end - 1);
}

}  // namespace

ShardedState::ShardedState(const std::string& checkpoints_dir, CheckpointManifest manifest)
    : directory_(checkpoints_dir + "/" + manifest.directory),
      manifest_(std::move(manifest)),
      shards_(manifest_.shards.size()) {}

Status ShardedState::OpenFor(const std::vector<ShardArray>& arrays, int likely) {
  if (likely >= 0 && likely < static_cast<int>(shards_.size())) {
    MUSTER_RETURN_IF_ERROR(OpenShardAt(static_cast<std::size_t>(likely)));
    const bool all = std::all_of(arrays.begin(), arrays.end(), [&](const ShardArray& array) {
      return std::all_of(array.intervals.begin(), array.intervals.end(),
                         [&](const TensorInterval& each) { return Covers(array, each); });
    });
    if (all && have_cursor_) return OkStatus();
  }
  return OpenAll();
}

Status ShardedState::OpenAll() {
  for (std::size_t i = 0; i < shards_.size(); ++i) MUSTER_RETURN_IF_ERROR(OpenShardAt(i));
  MUSTER_RETURN_IF_ERROR(CheckSegments());
  const Status* lost = FirstLost();
  return lost == nullptr || IsComplete() ? OkStatus() : *lost;
}

const Status* ShardedState::FirstLost() const {
  for (const Shard& shard : shards_) {
    if (!shard.lost.ok()) return &shard.lost;
  }
  return nullptr;
}

bool ShardedState::IsComplete() const {
  if (parameters_ == 0) return false;  // format version 1, in which nothing was saved twice
  std::map<std::string, std::int64_t> elements;  // by kind
  for (const auto& [key, entry] : index_) {
    std::int64_t end = 0;
    while (const Segment* segment = FindSegment(entry, end)) {
      elements[key.first] += segment->end - end;
      end = segment->end;
    }
  }
  return !elements.empty() && std::all_of(elements.begin(), elements.end(), [&](const auto& kind) {
    return kind.second == parameters_;
  });
}

// A shard that is lost is remembered as such: what it held may lie in another.
Status ShardedState::OpenShardAt(std::size_t i) {
  Shard& shard = shards_[i];
  if (shard.opened) return OkStatus();
  shard.opened = true;
  auto reader = ShardReader::Open(directory_, manifest_.shards[i]);
  Status status = reader.status();
  if (status.ok()) {
    shard.reader = std::make_unique<ShardReader>(*std::move(reader));
    status = CheckIdentity(*shard.reader, i);
  }
  if (!status.ok()) {
    if (!IsLost(status)) return status;
    shard.reader.reset();
    shard.lost = std::move(status);
    return OkStatus();
  }
  return AddArrays(*shard.reader, i);
}

Status ShardedState::CheckIdentity(const ShardReader& reader, std::size_t i) {
  const ShardHeader& header = reader.header();
  if (header.rank != manifest_.shards[i].rank || header.world_size != manifest_.world_size ||
      header.cursor.step != manifest_.step || header.generation != manifest_.generation ||
      (!manifest_.job_id.empty() && header.job_id != manifest_.job_id)) {
    return DataLoss(reader.path() + " says it is rank " + std::to_string(header.rank) + " of " +
                    std::to_string(header.world_size) + ", step " +
                    std::to_string(header.cursor.step) + ", generation " +
                    std::to_string(header.generation) + " of job \"" + header.job_id +
                    "\": its manifest disagrees");
  }
  if (have_cursor_ && !(header.cursor == cursor_)) {
    return DataLoss(reader.path() + " stands elsewhere in the data than the other shards");
  }
  if (!have_cursor_) adapter_ = header.adapter;
  cursor_ = header.cursor;
  have_cursor_ = true;
  parameters_ = header.parameters;
  return OkStatus();
}

Status ShardedState::AddArrays(const ShardReader& reader, std::size_t shard) {
  const std::vector<ShardArray>& arrays = reader.header().arrays;
  for (std::size_t a = 0; a < arrays.size(); ++a) {
    for (const TensorInterval& interval : arrays[a].intervals) {
      if (interval.count == 0) continue;
      const std::uint64_t offset =
          reader.places().offsets[a] +
          static_cast<std::uint64_t>(interval.array_offset) * ElementSize(arrays[a].type);
      MUSTER_RETURN_IF_ERROR(
          AddSegment(arrays[a], interval, reader,
                     {interval.begin, interval.begin + interval.count, shard, offset}));
    }
  }
  return OkStatus();
}

Status ShardedState::AddSegment(const ShardArray& array, const TensorInterval& interval,
                                const ShardReader& reader, const Segment& segment) {
  const auto [found, added] =
      index_.try_emplace({std::string(array.kind()), interval.tensor},
                         Entry{{interval.shape, array.type, reader.path()}, {}});
  Entry& entry = found->second;
  const auto differs = [&](const std::string& what) {
    return DataLoss(reader.path() + " and " + entry.tensor.file + " disagree about the " + what +
                    " of tensor " + interval.tensor);
  };
  if (entry.tensor.shape != interval.shape) return differs("shape");
  if (entry.tensor.type != array.type) return differs("element type");
  const auto order = [](const Segment& a, const Segment& b) {
    return std::tie(a.begin, a.end, a.shard) < std::tie(b.begin, b.end, b.shard);
  };
  entry.segments.insert(
      std::upper_bound(entry.segments.begin(), entry.segments.end(), segment, order), segment);
  return OkStatus();
}

// Two intervals are the same, of replicas, or have nothing in common.
Status ShardedState::CheckSegments() const {
  for (const auto& [key, entry] : index_) {
    for (std::size_t i = 1; i < entry.segments.size(); ++i) {
      const Segment& a = entry.segments[i - 1];
      const Segment& b = entry.segments[i];
      if (b.begin >= a.end || (b.begin == a.begin && b.end == a.end)) continue;
      return DataLoss(shards_[b.shard].reader->path() + " holds " + Elements(b.begin, b.end) +
                      " of " + key.first + " of tensor " + key.second + ", which overlap with " +
                      Elements(a.begin, a.end) + " in " + shards_[a.shard].reader->path());
    }
  }
  return OkStatus();
}

const ShardedState::Entry* ShardedState::FindEntry(std::string_view kind,
                                                   const std::string& tensor) const {
  const auto found = index_.find({std::string(kind), tensor});
  return found == index_.end() ? nullptr : &found->second;
}

const StateTensor* ShardedState::Find(std::string_view kind, const std::string& tensor) const {
  const Entry* entry = FindEntry(kind, tensor);
  return entry == nullptr ? nullptr : &entry->tensor;
}

std::vector<std::string> ShardedState::kinds() const {
  std::set<std::string> kinds;
  for (const auto& [key, entry] : index_) kinds.insert(key.first);
  return {kinds.begin(), kinds.end()};
}

std::vector<std::string> ShardedState::tensors(std::string_view kind) const {
  std::vector<std::string> names;
  for (const auto& [key, entry] : index_) {
    if (key.first == kind) names.push_back(key.second);
  }
  return names;
}

bool ShardedState::Covers(const ShardArray& array, const TensorInterval& interval) const {
  const Entry* entry = FindEntry(array.kind(), interval.tensor);
  const std::int64_t end = interval.begin + interval.count;
  for (std::int64_t at = interval.begin; at < end;) {
    const Segment* segment = entry == nullptr ? nullptr : FindSegment(*entry, at);
    if (segment == nullptr) return false;
    at = segment->end;
  }
  return true;
}

const ShardedState::Segment* ShardedState::FindSegment(const Entry& entry, std::int64_t at) const {
  // The last that begins at or before `at`, and its replicas before it.
  auto segment = std::upper_bound(entry.segments.begin(), entry.segments.end(), at,
                                  [](std::int64_t a, const Segment& b) { return a < b.begin; });
  while (segment != entry.segments.begin()) {
    --segment;
    if (segment->end <= at) return nullptr;
    if (shards_[segment->shard].lost.ok()) return &*segment;
  }
  return nullptr;
}

Status ShardedState::Missing(std::string_view kind, const std::string& tensor,
                             std::int64_t at) const {
  if (const Status* lost = FirstLost()) return *lost;
  return DataLoss(directory_ + " is incomplete: element " + std::to_string(at) + " of " +
                  std::string(kind) + " of tensor " + tensor + " is in none of its shards");
}

Status ShardedState::Read(std::string_view kind, const std::string& tensor, std::int64_t begin,
                          std::int64_t count, void* out) {
  const Entry* entry = FindEntry(kind, tensor);
  const std::size_t size = ElementSize(entry->tensor.type);
  auto* to = static_cast<char*>(out);
  for (const std::int64_t end = begin + count; begin < end;) {
    const Segment* segment = FindSegment(*entry, begin);
    if (segment == nullptr) {
      const bool opened_all = std::all_of(shards_.begin(), shards_.end(),
                                          [](const Shard& shard) { return shard.opened; });
      if (opened_all) return Missing(kind, tensor, begin);
      MUSTER_RETURN_IF_ERROR(OpenAll());
      continue;
    }
    const std::size_t owner = segment->shard;
    const std::int64_t part = Intersect({begin, end}, {segment->begin, segment->end}).count();
    const std::uint64_t offset =
        segment->offset + static_cast<std::uint64_t>(begin - segment->begin) * size;
    Status status =
        shards_[owner].reader->Read(offset, static_cast<std::uint64_t>(part) * size, to, &cache_);
    if (!status.ok()) {
      if (!IsLost(status)) return status;
      shards_[owner].lost = std::move(status);  // a replica may have it
      continue;
    }
    to += static_cast<std::size_t>(part) * size;
    begin += part;
  }
  return OkStatus();
}

}  // namespace muster
