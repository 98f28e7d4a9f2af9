#include "trainer/comm/collectives.h"

#include <string>

namespace muster {

Status CheckReduceTypes(ElementType full, ElementType sum, ElementType shard) {
  const bool integers = IsInteger(full) || IsInteger(sum) || IsInteger(shard);
  if (!integers || (full == sum && sum == shard)) return OkStatus();
  return InvalidArgument("cannot reduce " + std::string(ElementTypeName(full)) + " in " +
                         std::string(ElementTypeName(sum)) + " to " +
                         std::string(ElementTypeName(shard)) +
                         ": integers are reduced in their own type");
}

std::size_t BytesSent(const Operation& o, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size);
  switch (o.kind) {
    case CollectiveOp::kAllGather: return o.count * ElementSize(o.type) * (ranks - 1);
    case CollectiveOp::kReduceScatter:
      return o.reduce_scatter.count * ElementSize(o.reduce_scatter.sum_type) * (ranks - 1);
    case CollectiveOp::kAllReduce: return 2 * o.count * ElementSize(o.type) * (ranks - 1) / ranks;
    case CollectiveOp::kBroadcast: return (rank + 1) % size == o.root ? 0 : o.count;
    case CollectiveOp::kRingSendRecv: return size == 1 ? 0 : o.count;
    case CollectiveOp::kBarrier: return ranks - 1;
  }
  return 0;
}

}  // namespace muster
