#include "trainer/comm/agree.h"

#include <cstdint>

namespace muster {
namespace {

// The severity and, among those who have it, the lowest rank: one number whose maximum is wanted.
constexpr std::int64_t kRankRange = 1 << 24;

}  // namespace

Status ShareText(Communicator& communicator, std::string* text, int root) {
  auto length = static_cast<std::int64_t>(text->size());
  MUSTER_RETURN_IF_ERROR(communicator.Broadcast(&length, sizeof(length), root)->Wait());
  text->resize(static_cast<std::size_t>(length));
  return communicator.Broadcast(text->data(), text->size(), root)->Wait();
}

Status AgreeOnStatus(Communicator& communicator, const Status& mine, int severity) {
  std::int64_t worst = severity * kRankRange + (kRankRange - 1 - communicator.rank());
  MUSTER_RETURN_IF_ERROR(
      communicator.AllReduce(&worst, 1, ElementType::kInt64, ReduceOp::kMax)->Wait());
  if (worst / kRankRange == 0) return OkStatus();
  const int rank = static_cast<int>(kRankRange - 1 - worst % kRankRange);
  auto code = static_cast<std::int64_t>(mine.code());
  std::string message = mine.message();
  MUSTER_RETURN_IF_ERROR(communicator.Broadcast(&code, sizeof(code), rank)->Wait());
  MUSTER_RETURN_IF_ERROR(ShareText(communicator, &message, rank));
  return {static_cast<StatusCode>(code), "rank " + std::to_string(rank) + ": " + message};
}

Status AgreeOnStatus(Communicator& communicator, const Status& mine) {
  return AgreeOnStatus(communicator, mine, mine.ok() ? 0 : 1);
}

}  // namespace muster
