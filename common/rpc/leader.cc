#include "common/rpc/leader.h"

#include "common/rpc/endpoint.h"

namespace muster {

std::optional<StandbyAnswer> StandbyAnswerOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kLeaderKey);
  if (found == metadata.end()) return std::nullopt;
  const std::string value(found->second.data(), found->second.size());
  if (value == kNoneLeads) return StandbyAnswer{.none_leads = true};
  return StandbyAnswer{.leader = CheckTlsListenAddress(value).ok() ? value : ""};
}

}  // namespace muster
