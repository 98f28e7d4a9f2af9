#include "worker/fabric/node_address.h"

#include <algorithm>

#include "common/net/interfaces.h"

namespace muster::worker {
namespace {

constexpr char kLoopback[] = "127.0.0.1";

// The interfaces of an address that the user has given.
Result<NodeAddress> WithGivenAddress(const NodeAddressOptions& options) {
  NodeAddress node{.address = options.address, .why = options.address + ", as --address says"};
  const auto address = IpAddress::Parse(options.address);
  MUSTER_ASSIGN_OR_RETURN(const auto interfaces, ReadInterfaces());
  const std::string owner = address.ok() ? InterfaceOf(interfaces, *address) : "";
  if (!options.interface.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const auto choice, InterfaceChoice::Parse(options.interface));
    MUSTER_ASSIGN_OR_RETURN(const ChosenAddress chosen,
                            ChooseAddress(choice, {.interfaces = interfaces}));
    node.interfaces = chosen.interfaces;
    if (std::find(node.interfaces.begin(), node.interfaces.end(), owner) == node.interfaces.end())
      return InvalidArgument("--address " + options.address + " is " +
                             (owner.empty() ? "on no interface of this node" : "on " + owner) +
                             ", but --interface says " + options.interface +
                             "; leave one of the two out");
    return node;
  }
  if (!address.ok() || address->is_loopback()) return node;
  if (!owner.empty()) {
    node.interfaces = {owner};
    node.why += ", on " + owner;
  } else {
    node.why += ", which no interface of this node has: no rank can listen there";
  }
  return node;
}

bool OnThisHost(const std::string& coordinator) {
  const auto peer = ParsePeer(coordinator);
  return coordinator.starts_with("localhost:") ||
         (peer.ok() && (!peer->has_value() || (*peer)->is_loopback()));
}

}  // namespace

Result<NodeAddress> ResolveNodeAddress(const NodeAddressOptions& options) {
  if (!options.address.empty()) return WithGivenAddress(options);
  const bool local = OnThisHost(options.coordinator);
  if (options.interface.empty() && local && !options.others_are_remote)
    return NodeAddress{
        .address = kLoopback,
        .why =
            "127.0.0.1: the coordinator is on this host, or not known yet, and neither "
            "--address nor --interface says where others reach this node"};
  InterfaceChoice choice;
  if (!options.interface.empty()) {
    MUSTER_ASSIGN_OR_RETURN(choice, InterfaceChoice::Parse(options.interface));
  }
  MUSTER_ASSIGN_OR_RETURN(const ChosenAddress chosen,
                          ChooseOwnAddress(choice, local ? "" : options.coordinator));
  NodeAddress node{.address = chosen.address.ToString(), .why = chosen.why};
  if (!chosen.address.is_loopback()) node.interfaces = chosen.interfaces;
  return node;
}

}  // namespace muster::worker
