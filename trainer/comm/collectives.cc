#include "trainer/comm/collectives.h"

#include <numeric>
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

std::vector<std::size_t> BlockBegins(const BlockBytes& blocks) {
  std::vector<std::size_t> begins(1, 0);
  for (const std::size_t bytes : blocks) begins.push_back(begins.back() + bytes);
  return begins;
}

Status CheckAllToAll(const AllToAllArgs& args, int rank, int size) {
  const auto ranks = static_cast<std::size_t>(size), own = static_cast<std::size_t>(rank);
  if (args.send_bytes.size() != ranks || args.receive_bytes.size() != ranks) {
    return InvalidArgument("an all-to-all has a block for each of the " + std::to_string(size) +
                           " ranks");
  }
  if (args.send_bytes[own] == args.receive_bytes[own]) return OkStatus();
  return InvalidArgument("a rank's block for itself is as long when it is sent as when it comes");
}

Status OtherBlock(int sender, std::size_t sent, int receiver, std::size_t awaited) {
  return Internal("rank " + std::to_string(sender) + " sends rank " + std::to_string(receiver) +
                  " " + std::to_string(sent) + " bytes, and that one expects " +
                  std::to_string(awaited) + ": the ranks do not issue the same collectives");
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
    case CollectiveOp::kAllToAll:
      return std::accumulate(o.send_bytes.begin(), o.send_bytes.end(), std::size_t{0}) -
             o.send_bytes[static_cast<std::size_t>(rank)];
  }
  return 0;
}

}  // namespace muster
