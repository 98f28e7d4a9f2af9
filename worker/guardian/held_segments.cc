#include "worker/guardian/held_segments.h"

#include <algorithm>

#include "common/base/json.h"

namespace muster::guardian {

void HeldSegments::TakeOver(const std::string& name, EffectList& out) {
  std::erase_if(segments_, [&](const Segment& s) { return s.name == name; });
  segments_.push_back({.name = name});
  out.Add(HoldSegment{name});
}

void HeldSegments::Hold(const std::string& name, ProcessId maker, const Gang& gang,
                        EffectList& out) {
  if (name.empty() || name.size() > kMaxSegmentName) return;
  TakeOver(name, out);
  segments_.back().maker = maker;
  segments_.back().made = gang.generation;
  out.Send(GuardianSegment{name}, 0, name);
  const std::size_t ranks = std::max<std::size_t>(gang.node_ranks.size(), 1);
  while (segments_.size() > kSegmentsPerRank * ranks)
    LetGo(std::string(LeastUseful(gang.generation).name), out);
}

void HeldSegments::LetGo(const std::string& name, EffectList& out) {
  if (std::erase_if(segments_, [&](const Segment& s) { return s.name == name; }) == 0) return;
  out.Add(ReleaseSegment{name});
  out.Send(GuardianSegment{.name = name, .dropped = true});
}

void HeldSegments::NoteCut(const std::vector<std::string>& names, Generation generation) {
  cut_known_ = generation;
  for (Segment& segment : segments_)
    if (std::ranges::find(names, segment.name) != names.end()) segment.cut = generation;
}

// By age alone the only whole state would be dropped if gangs of several sizes in a row fail to
// form, each with new segments.
const HeldSegments::Segment& HeldSegments::LeastUseful(Generation newest) const {
  const auto use = [&](const Segment& segment) {
    if (cut_known_ > 0 && segment.cut == cut_known_) return 3;
    if (segment.made == newest) return 2;
    return segment.made < cut_known_ ? 0 : 1;
  };
  return *std::ranges::min_element(segments_, {}, use);  // the oldest of them
}

void HeldSegments::SendTo(ProcessId process, EffectList& out) const {
  for (const Segment& segment : segments_)
    if (segment.maker != process)
      out.Add(SendToProcess{process, RankMessage({{"type", "segment"}, {"name", segment.name}}),
                            segment.name});
}

void HeldSegments::SendToWorker(EffectList& out) const {
  for (const Segment& segment : segments_) out.Send(GuardianSegment{segment.name}, 0, segment.name);
}

}  // namespace muster::guardian
