// What an operator says of a node: its labels, and where it is in the network. Read from flags of
// muster-worker, a file, or Slurm's variables. Pure; any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/resources/node_inventory.h"

namespace muster::worker {

// Each "KEY=VALUE". kInvalidArgument names the text that is not one, or the key that is there
// twice.
Result<std::map<std::string, std::string>> ParseLabels(const std::vector<std::string>& texts);

// "block=B,rack=R,switch=S", any of these.
Result<TopologyPath> ParseTopology(std::string_view text);

// What the line "NODE block=B,rack=R" of this node says; '#' begins a comment. kNotFound: there is
// none. Errors begin with "name:line: " where a line is wrong.
Result<TopologyPath> TopologyInFile(std::string_view text, const std::string& name,
                                    const std::string& node);

// By Slurm's SLURM_TOPOLOGY_ADDR ("s0.s2.n7") and SLURM_TOPOLOGY_ADDR_PATTERN
// ("switch.switch.node"): the last switch is `switch`, the one above it `rack`, the one above
// that `block`, and so is a "block". Empty where they do not fit each other.
TopologyPath TopologyOfSlurm(std::string_view address, std::string_view pattern);

}  // namespace muster::worker
