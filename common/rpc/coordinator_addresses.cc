#include "common/rpc/coordinator_addresses.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <utility>

namespace muster {
namespace {

constexpr std::string_view kByName = "dnssrv+";

}  // namespace

Result<std::vector<std::string>> CoordinatorAddresses::Parse(const std::string& list) {
  std::vector<std::string> addresses;
  std::istringstream words(list);
  for (std::string address; std::getline(words, address, ',');) {
    MUSTER_RETURN_IF_ERROR(address.starts_with(kByName)
                               ? CheckServiceName(address.substr(kByName.size()))
                               : CheckTlsListenAddress(address));
    if (std::ranges::find(addresses, address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

std::string CoordinatorAddresses::Text(const std::vector<std::string>& addresses) {
  std::string list;
  for (const std::string& address : addresses) list += (list.empty() ? "" : ",") + address;
  return list;
}

CoordinatorAddresses::CoordinatorAddresses(const std::vector<std::string>& list,
                                           ResolveName resolve)
    : resolve_(std::move(resolve)) {
  for (const std::string& each : list) {
    if (each.starts_with(kByName))
      names_.push_back(each.substr(kByName.size()));
    else
      given_.push_back(each);
  }
  addresses_ = given_;
  is_stale_ = !names_.empty();
}

Status CoordinatorAddresses::Resolve() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_stale_) return OkStatus();
  }
  std::vector<std::string> found = given_;
  Status failed;
  for (const std::string& name : names_) {
    const auto resolved = resolve_(name);
    if (!resolved.ok()) failed = resolved.status();
    if (resolved.ok()) found.insert(found.end(), resolved->begin(), resolved->end());
  }
  const std::lock_guard lock(mutex_);
  failed_ = 0;
  is_stale_ = !failed.ok();
  if (!failed.ok()) return addresses_.empty() ? Unavailable(failed.message()) : OkStatus();
  if (found != addresses_) next_ = 0;
  addresses_ = std::move(found);
  return OkStatus();
}

std::vector<std::string> CoordinatorAddresses::all() const {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

std::string CoordinatorAddresses::Current() const {
  const std::lock_guard lock(mutex_);
  if (!leader_.empty()) return leader_;
  return addresses_.empty() ? "" : addresses_[next_];
}

bool CoordinatorAddresses::HasOthers() const {
  const std::lock_guard lock(mutex_);
  return !leader_.empty() || addresses_.size() > 1 || !names_.empty();
}

void CoordinatorAddresses::Failed(const std::string& address, const std::string& leader) {
  const std::lock_guard lock(mutex_);
  const bool is_named = !leader_.empty();
  if (is_named && address != leader_) return;
  if (!is_named && !addresses_.empty() && address != addresses_[next_]) return;
  // Also where it has named the leader: should that one fail, another of the list is asked.
  if (!is_named && !addresses_.empty()) {
    next_ = (next_ + 1) % addresses_.size();
    is_stale_ |= !names_.empty() && ++failed_ >= addresses_.size();
  }
  leader_ = leader;
}

Result<Endpoint> FindCoordinator(CoordinatorAddresses& addresses, const std::string& path) {
  MUSTER_RETURN_IF_ERROR(addresses.Resolve());
  std::string address = addresses.Current();
  if (address.empty()) return ReadEndpoint(path);
  return Endpoint{.grpc_tls = std::move(address)};
}

}  // namespace muster
