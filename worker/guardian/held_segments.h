// HeldSegments: the snapshot segments that a guardian holds for its job, and which of them it lets
// go of when there are too many (docs/recovery.md).
//
// Owned by GuardianCore, to whose effects it adds. Pure; any one thread.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "common/base/ids.h"
#include "worker/guardian/gang.h"
#include "worker/guardian/guardian_effects.h"
#include "worker/guardian/protocol.h"

namespace muster::guardian {

class HeldSegments {
 public:
  bool empty() const { return segments_.empty(); }

  // One that an earlier guardian of the job held.
  void TakeOver(const std::string& name, EffectList& out);
  // One that a process of the newest gang has made; a name that cannot be one is ignored.
  void Hold(const std::string& name, ProcessId maker, const Gang& gang, EffectList& out);
  void LetGo(const std::string& name, EffectList& out);
  // The ranks of the generation have seen all that is held here and elsewhere, and have agreed on
  // the newest whole state, which these are part of: what existed then and is not part of it will
  // not be part of a later choice.
  void NoteCut(const std::vector<std::string>& names, Generation generation);

  // All but those that the process has made.
  void SendTo(ProcessId process, EffectList& out) const;
  void SendToWorker(EffectList& out) const;

 private:
  struct Segment {
    std::string name;
    ProcessId maker = 0;  // 0: a process of an earlier guardian
    Generation made = 0;  // the newest generation then
    Generation cut = 0;   // the newest one that continues from a state that it holds part of
  };

  const Segment& LeastUseful(Generation newest) const;

  std::deque<Segment> segments_;  // oldest first
  Generation cut_known_ = 0;      // the newest generation that has reported its cut
};

}  // namespace muster::guardian
