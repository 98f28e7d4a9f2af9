// Slurm's short form of node lists: "n[1-3,7],gpu-[08-11]", to names and back.
//
// Our own, because a container that a step runs in seldom has scontrol. What is read: names
// separated by commas; in a name any number of brackets with numbers and ranges, the last bracket
// running fastest ("r[0-1]n[1-2]" is r0n1 r0n2 r1n1 r1n2), and text behind a bracket, which Slurm
// itself does not print. A range has as many digits as its first number is written with: [08-11].
//
// The format is that of "node range expression" in slurm.conf(5). Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster::slurm {

// As many nodes as Slurm itself takes in one range.
inline constexpr std::size_t kMaxHosts = 65536;

// The names, in the list's order, repeated where it repeats them. kInvalidArgument with the column
// (from 1) for what is malformed, kResourceExhausted where there would be more than `max_hosts`.
Result<std::vector<std::string>> ExpandHostlist(std::string_view hostlist,
                                                std::size_t max_hosts = kMaxHosts);

// The short form of names in the order they have, as `scontrol show hostlist` prints it. What
// ExpandHostlist makes of it are the same names.
std::string CompressHostlist(const std::vector<std::string>& hosts);

// Slurm's counts per node, "2(x3),1" is 2 2 2 1: of SLURM_TASKS_PER_NODE and its like.
Result<std::vector<int>> ExpandCounts(std::string_view counts, std::size_t max_nodes = kMaxHosts);

}  // namespace muster::slurm
