// The address and the interfaces that a worker announces, from its command line and from the
// location of its coordinator. Reads the host's interfaces; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster::worker {

struct NodeAddressOptions {
  std::string address;      // --address; empty: chosen
  std::string interface;    // --interface; empty: not given
  std::string coordinator;  // where it listens, "10.0.0.1:7700"; empty: unknown
  // Others are on other hosts, even where the coordinator is on this one.
  bool others_are_remote = false;
};

struct NodeAddress {
  std::string address;
  // for collectives; empty if the address is local to this host
  std::vector<std::string> interfaces;
  std::string why;  // a sentence, for the log
};

// As in common/net/interfaces.h, but a coordinator on this host and no user setting mean a cluster
// of this host alone: loopback. kInvalidArgument: --interface is wrong, or does not have the given
// address; kNotFound: see ChooseAddress.
Result<NodeAddress> ResolveNodeAddress(const NodeAddressOptions& options);

}  // namespace muster::worker
