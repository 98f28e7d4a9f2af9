// RetainedSegments: the snapshot segments that a rank's process can read: those it made, its
// buddies', and what the guardian hands over before an assignment.
//
// Lives as long as the process, so that the state of one generation is at hand for the next. The
// trainer's thread.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "trainer/state/snapshot/segment.h"
#include "trainer/supervise/guardian_message.h"

namespace muster {

class RetainedSegments {
 public:
  // Maps it, for writing where the descriptor allows that. One that is here by its name already
  // stays as it is. kDataLoss when it is no segment.
  Status Add(HeldSegment held);
  // Made by this process.
  Segment* Add(std::unique_ptr<Segment> made);

  std::vector<const Segment*> readable() const;
  const std::vector<std::unique_ptr<Segment>>& segments() const { return segments_; }
  std::vector<std::unique_ptr<Segment>> TakeOut(const std::function<bool(const Segment&)>& wanted);

  // Unmaps all but those of these names; the names of the others.
  std::vector<std::string> KeepOnly(const std::set<std::string>& names);

 private:
  std::vector<std::unique_ptr<Segment>> segments_;
};

}  // namespace muster
