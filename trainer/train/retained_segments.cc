#include "trainer/train/retained_segments.h"

#include <fcntl.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster {

Status RetainedSegments::Add(HeldSegment held) {
  const auto known = [&](const auto& each) { return each->spec().name == held.name; };
  if (std::any_of(segments_.begin(), segments_.end(), known)) return OkStatus();
  const int flags = ::fcntl(held.fd.get(), F_GETFL);
  const auto access = flags >= 0 && (flags & O_ACCMODE) == O_RDWR ? Segment::Access::kReadWrite
                                                                  : Segment::Access::kReadOnly;
  Result<std::unique_ptr<Segment>> mapped = Segment::Map(std::move(held.fd), access);
  if (!mapped.ok()) return mapped.status().WithContext("snapshot segment " + held.name);
  segments_.push_back(*std::move(mapped));
  return OkStatus();
}

Segment* RetainedSegments::Add(std::unique_ptr<Segment> made) {
  segments_.push_back(std::move(made));
  return segments_.back().get();
}

std::vector<const Segment*> RetainedSegments::readable() const {
  std::vector<const Segment*> readable;
  for (const auto& each : segments_) readable.push_back(each.get());
  return readable;
}

std::vector<std::unique_ptr<Segment>> RetainedSegments::TakeOut(
    const std::function<bool(const Segment&)>& wanted) {
  const auto first = std::stable_partition(segments_.begin(), segments_.end(),
                                           [&](const auto& each) { return !wanted(*each); });
  std::vector<std::unique_ptr<Segment>> taken(std::make_move_iterator(first),
                                              std::make_move_iterator(segments_.end()));
  segments_.erase(first, segments_.end());
  return taken;
}

std::vector<std::string> RetainedSegments::KeepOnly(const std::set<std::string>& names) {
  std::vector<std::string> gone;
  std::erase_if(segments_, [&](const auto& each) {
    if (names.contains(each->spec().name)) return false;
    gone.push_back(each->spec().name);
    return true;
  });
  return gone;
}

}  // namespace muster
