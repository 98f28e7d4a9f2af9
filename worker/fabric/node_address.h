// The address and the interfaces that a worker tells others, from its command line and from where
// its coordinator is. Looks at the host; any thread.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster::worker {

struct NodeAddressOptions {
  std::string address;      // --address; empty: to be chosen
  std::string interface;    // --interface; empty: none is named
  std::string coordinator;  // where it listens, "10.0.0.1:7700"; empty: not known
  // Others are on other hosts, even where the coordinator is on this one.
  bool others_are_remote = false;
};

struct NodeAddress {
  std::string address;
  // That collectives take; none where the address is one of this host alone.
  std::vector<std::string> interfaces;
  std::string why;  // a sentence, for the log
};

// As common/net/interfaces.h says, but a coordinator on this host and no word of the user mean a
// cluster of this host alone: loopback. kInvalidArgument: --interface is wrong, or has not the
// given address; kNotFound: see ChooseAddress.
Result<NodeAddress> ResolveNodeAddress(const NodeAddressOptions& options);

}  // namespace muster::worker
