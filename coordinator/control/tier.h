// Which recovery tier brings a job's next attempt up, and whether an abort leaves the survivors
// their processes (docs/recovery.md, "Tiers").
//
// Pure; any thread.
#pragma once

#include <vector>

#include "common/base/ids.h"
#include "coordinator/domain/records.h"

namespace muster {

struct TierInput {
  bool first = false;            // there was no attempt before
  bool waited = false;           // nodes for it were missing in between
  bool kept = false;             // the abort before left survivors their processes
  std::vector<NodeName> before;  // nodes of the attempt before, by node rank
  std::vector<NodeName> now;
};
Tier ChooseTier(const TierInput& input);

struct KeepInput {
  bool train = false;         // a command's processes serve one generation
  bool in_place = true;       // the job's restart.in_place
  bool retryable = true;      // another attempt will follow
  bool stopping = false;      // the job or the attempt ends on purpose
  bool formed = false;        // its ranks had formed
  bool stepped = false;       // it finished a step
  Tier tier = Tier::kLaunch;  // the tier that brought the attempt up
};
// False also if the attempt itself had come up with parked processes and made no progress: the
// fault may be in them.
bool KeepsProcesses(const KeepInput& input);

}  // namespace muster
