// SegmentKeeper: duplicates of the snapshot segments that guardians hold, so that the state of a
// job outlives its guardian: the next one gets them from here (docs/recovery.md).
//
// Owned by AgentRunner; loop thread only.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/ids.h"
#include "common/base/unique_fd.h"
#include "worker/guardian/protocol.h"

namespace muster::worker {

class SegmentKeeper {
 public:
  using Segments = std::map<std::string, UniqueFd>;

  // A job with fewer ranks may have as many: its guardian may still hold what an earlier, larger
  // generation has left.
  static constexpr std::size_t kAlwaysKept = 64;

  // A guardian's report of a segment of a job that has `ranks` ranks on this node. One without a
  // descriptor that is not dropped is ignored; one more than that many ranks can need, or as many
  // as the job had here before, is closed.
  void Apply(const JobId& job, const GuardianSegment& segment, UniqueFd descriptor,
             std::size_t ranks);

  // Between these a guardian that was connected to before reports all segments that it holds; those
  // that it does not name were dropped in the meantime. A guardian that was just started has none:
  // no replay.
  void BeginReplay(const JobId& job);
  void EndReplay(const JobId& job);

  void Forget(const JobId& job) { jobs_.erase(job); }
  const Segments& Of(const JobId& job) const;

 private:
  struct Held {
    Segments segments;
    std::optional<std::set<std::string>> replayed;
    std::size_t limit = kAlwaysKept;
  };
  std::map<JobId, Held> jobs_;
};

}  // namespace muster::worker
