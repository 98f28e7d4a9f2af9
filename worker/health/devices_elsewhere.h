// Devices of this node that jobs of other workers have: their locks are held, and not by a job of
// this node.
//
// Blocks for as long as the directory of the locks takes to answer. Any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace muster::worker {

// Ids by who has them: "in use elsewhere on this machine, by job J ...". A device whose lock cannot
// be opened is one of them, with the reason: no job could lock it.
std::map<std::string, std::vector<std::string>> DevicesElsewhere(
    const std::string& locks_dir, const std::string& jobs_dir, const std::vector<std::string>& ids);

}  // namespace muster::worker
