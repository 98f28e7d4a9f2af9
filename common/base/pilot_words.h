// What coordinator and worker both say of pilot jobs (docs/pilots.md).
//
// Constants; any thread.
#pragma once

namespace muster {

// A drain whose reason begins so is the pilot job's, and says nothing against the node.
inline constexpr char kPilotDrainReason[] = "its pilot job";

}  // namespace muster
