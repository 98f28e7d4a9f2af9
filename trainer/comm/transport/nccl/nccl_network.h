// Whether NCCL does without the RDMA adapters of this host, as far as the process shows it.
//
// NCCL has no function that names the network that it chose, and its log cannot be asked for
// without harm: the variables for it would be set while other threads read the environment, and
// NCCL reads them once per process. What it uses it holds open: NCCL and libfabric keep the device
// file of every adapter that they take, and NCCL closes at once what it does not take. So no such
// file means sockets. Releases before 2.28 open adapters although NCCL_NET chooses sockets, which
// is why that variable is read too; libfabric may open EFA adapters that its plug-in then refuses,
// which goes unseen.
//
// Free functions; any thread. Nothing is changed, and what cannot be read counts as missing.
#pragma once

#include <string>
#include <vector>

namespace muster {

struct RdmaUse {
  std::vector<std::string> adapters;  // of this host that have an active port, by name
  bool in_use = false;                // this process holds the device file of an adapter
};

// `root` is laid out as "/": sys/class/infiniband, proc/self/fd. Once communicators are connected.
RdmaUse ReadRdmaUse(const std::string& root);

// What Transport::fallback says of ranks on several nodes; empty: there are no adapters, or they
// are used. `nccl_net`: the value of NCCL_NET; null: not set.
std::string SocketFallback(const RdmaUse& use, const char* nccl_net);

}  // namespace muster
