#include "coordinator/control/master_address.h"

#include "common/base/check.h"

namespace muster {

bool IsLoopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1" || address == "[::1]" ||
         address == "localhost" || address == "ip6-localhost";
}

Result<std::string> ChooseMasterAddress(const std::vector<const NodeRecord*>& nodes) {
  MUSTER_CHECK(!nodes.empty(), "a gang has at least one node");
  const NodeRecord& master = *nodes.front();
  if (master.address.empty()) {
    return FailedPrecondition("node " + master.name.value +
                              " reported no address; start its worker with --address");
  }
  if (!IsLoopback(master.address)) return master.address;
  for (const NodeRecord* node : nodes) {
    if (node->host_id == master.host_id) continue;
    return FailedPrecondition("node " + master.name.value + " advertises the loopback address " +
                              master.address + ", but node " + node->name.value +
                              " runs on another host; start the worker of " + master.name.value +
                              " with --address and an address that the other can reach");
  }
  return master.address;
}

}  // namespace muster
