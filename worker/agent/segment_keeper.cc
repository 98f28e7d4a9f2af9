#include "worker/agent/segment_keeper.h"

#include <algorithm>
#include <utility>

namespace muster::worker {

void SegmentKeeper::Apply(const JobId& job, const GuardianSegment& segment, UniqueFd descriptor,
                          std::size_t ranks) {
  Held& held = jobs_[job];
  // A guardian reports a new segment before it drops the one that it is too many with.
  held.limit = std::max(held.limit, kSegmentsPerRank * ranks + 1);
  if (segment.dropped) {
    held.segments.erase(segment.name);
  } else if (descriptor.valid() && segment.name.size() <= kMaxSegmentName) {
    if (held.segments.size() >= held.limit && !held.segments.contains(segment.name)) return;
    held.segments[segment.name] = std::move(descriptor);
    if (held.replayed) held.replayed->insert(segment.name);
  }
}

void SegmentKeeper::BeginReplay(const JobId& job) { jobs_[job].replayed.emplace(); }

void SegmentKeeper::EndReplay(const JobId& job) {
  const auto it = jobs_.find(job);
  if (it == jobs_.end() || !it->second.replayed) return;
  const std::set<std::string> named = *std::exchange(it->second.replayed, std::nullopt);
  std::erase_if(it->second.segments,
                [&](const auto& entry) { return !named.contains(entry.first); });
}

const SegmentKeeper::Segments& SegmentKeeper::Of(const JobId& job) const {
  static const Segments kNone;
  const auto it = jobs_.find(job);
  return it != jobs_.end() ? it->second.segments : kNone;
}

}  // namespace muster::worker
