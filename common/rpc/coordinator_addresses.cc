#include "common/rpc/coordinator_addresses.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace muster {

Result<std::vector<std::string>> CoordinatorAddresses::Parse(const std::string& list) {
  std::vector<std::string> addresses;
  std::istringstream words(list);
  for (std::string address; std::getline(words, address, ',');) {
    MUSTER_RETURN_IF_ERROR(CheckTlsListenAddress(address));
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

CoordinatorAddresses::CoordinatorAddresses(std::vector<std::string> addresses)
    : addresses_(std::move(addresses)) {}

std::string CoordinatorAddresses::Current() const {
  const std::lock_guard lock(mutex_);
  if (!leader_.empty()) return leader_;
  return addresses_.empty() ? "" : addresses_[next_];
}

bool CoordinatorAddresses::HasOthers() const {
  const std::lock_guard lock(mutex_);
  return !leader_.empty() || addresses_.size() > 1;
}

void CoordinatorAddresses::Failed(const std::string& address, const std::string& leader) {
  const std::lock_guard lock(mutex_);
  const bool is_named = !leader_.empty();
  if (is_named && address != leader_) return;
  if (!is_named && !addresses_.empty() && address != addresses_[next_]) return;
  // Also where it has named the leader: should that one fail, another of the list is asked.
  if (!is_named && !addresses_.empty()) next_ = (next_ + 1) % addresses_.size();
  leader_ = leader;
}

Result<Endpoint> FindCoordinator(const CoordinatorAddresses& addresses, const std::string& path) {
  std::string address = addresses.Current();
  if (address.empty()) return ReadEndpoint(path);
  return Endpoint{.grpc_tls = std::move(address)};
}

}  // namespace muster
