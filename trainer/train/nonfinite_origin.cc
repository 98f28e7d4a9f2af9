#include "trainer/train/nonfinite_origin.h"

#include <cstdint>
#include <vector>

namespace muster {

Result<NonFiniteOrigin> CompareFindings(const std::string& mine, Communicator& world) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(world.size()));
  sizes[static_cast<std::size_t>(world.rank())] = static_cast<std::int64_t>(mine.size());
  if (world.size() > 1) {
    MUSTER_RETURN_IF_ERROR(
        world.AllReduce(sizes.data(), sizes.size(), ElementType::kInt64, ReduceOp::kSum)->Wait());
  }
  NonFiniteOrigin origin;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (sizes[static_cast<std::size_t>(rank)] == 0) continue;
    if (origin.rank < 0) {
      origin.rank = rank;
    } else {
      ++origin.others;
    }
  }
  if (origin.rank < 0) return origin;
  origin.found = mine;
  if (world.size() > 1) {
    origin.found.resize(static_cast<std::size_t>(sizes[static_cast<std::size_t>(origin.rank)]));
    MUSTER_RETURN_IF_ERROR(
        world.Broadcast(origin.found.data(), origin.found.size(), origin.rank)->Wait());
  }
  return origin;
}

std::string DescribeOrigin(const NonFiniteOrigin& origin) {
  std::string text = "rank " + std::to_string(origin.rank) + ": " + origin.found;
  if (origin.others == 0) return text;
  return text + "; " + std::to_string(origin.others) +
         (origin.others == 1 ? " other rank has one too" : " other ranks have one too");
}

}  // namespace muster
