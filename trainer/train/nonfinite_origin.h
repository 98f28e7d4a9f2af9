// Which rank a number that is not finite came from: the ranks compare what each has found in
// itself.
//
// Collective, for a step that is known to have such a number; a step that has none costs nothing.
// Any thread, one at a time per communicator.
#pragma once

#include <string>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"

namespace muster {

struct NonFiniteOrigin {
  int rank = -1;      // the lowest that found something; -1: none did
  int others = 0;     // that found something as well
  std::string found;  // by that rank
};

// `mine`: what this rank has found in itself, or "". Equal on all ranks.
Result<NonFiniteOrigin> CompareFindings(const std::string& mine, Communicator& world);

// "rank 1: weight of model.norm.weight; 3 other ranks have one too".
std::string DescribeOrigin(const NonFiniteOrigin& origin);

}  // namespace muster
