#include "trainer/distributed/gloo_ring.h"

#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <string>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>

#include "trainer/distributed/gloo_link.h"
#include "trainer/distributed/tcp_liveness.h"

namespace muster {
namespace {

using gloo::transport::Context;

// Gloo writes to sockets without MSG_NOSIGNAL; a lost peer must be an error, not the end.
void IgnoreBrokenPipes() {
  struct sigaction current {};
  if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
    signal(SIGPIPE, SIG_IGN);
  }
}

// LibTorch exports a Gloo of its own with other layouts. Bound to it, we would crash much later.
Status CheckGloo() {
  Dl_info info{};
  const auto address = reinterpret_cast<void*>(&gloo::transport::tcp::CreateDevice);
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return OkStatus();
  const std::string library = info.dli_fname;
  if (library.find("libtorch") == std::string::npos) return OkStatus();
  return Internal("Gloo's functions come from " + library +
                  ": libgloo must stand before LibTorch on the link line");
}

template <typename Call>
Status Guarded(const std::string& what, Call call) {
  try {
    call();
    return OkStatus();
  } catch (const std::exception& error) {
    return Unavailable(what + ": " + error.what());
  } catch (...) {
    return Unavailable(what + ": unknown error");
  }
}

std::string AddressKey(const std::string& prefix, int from, int to) {
  return prefix + "gloo/" + std::to_string(from) + "/" + std::to_string(to);
}

// In the order in which edges are connected: by the smaller of the two ranks that an edge (r,
// r+1) starts from. One order for all, so that no circle of ranks waits for one another.
std::vector<int> Neighbours(int rank, int size) {
  const int left = (rank + size - 1) % size;
  const int right = (rank + 1) % size;
  if (left == right) return {left};
  return rank == 0 ? std::vector<int>{right, left} : std::vector<int>{left, right};
}

Status MakeContext(const std::string& address, int rank, int size, Deadline deadline,
                   std::shared_ptr<Context>* context) {
  return Guarded("cannot listen on " + address, [&] {
    gloo::transport::tcp::attr attributes(address.c_str());
    *context = gloo::transport::tcp::CreateDevice(attributes)->createContext(rank, size);
    (*context)->setTimeout(std::max(deadline.RemainingMillis(), std::chrono::milliseconds(1)));
    for (int peer : Neighbours(rank, size)) (*context)->createPair(peer);
  });
}

Status ConnectPair(Context& context, int peer, const std::string& bytes, Deadline deadline) {
  const std::string what = "cannot connect to rank " + std::to_string(peer);
  const Status status = Guarded(
      what, [&] { context.getPair(peer)->connect(std::vector<char>(bytes.begin(), bytes.end())); });
  if (!status.ok() && deadline.Expired()) return DeadlineExceeded(what + " in time");
  return status;
}

sockaddr_storage SocketAddress(const std::vector<char>& gloo_address) {
  return gloo::transport::tcp::Address(gloo_address).getSockaddr();
}

Status ConnectPairs(StoreMeeting& meeting, const std::string& prefix, Context& context,
                    Deadline deadline) {
  const auto neighbours = Neighbours(context.rank, context.size);
  std::vector<sockaddr_storage> addresses;
  for (int peer : neighbours) {
    const std::vector<char> bytes = context.getPair(peer)->address().bytes();
    addresses.push_back(SocketAddress(bytes));
    MUSTER_RETURN_IF_ERROR(meeting.Publish(AddressKey(prefix, context.rank, peer),
                                           std::string(bytes.begin(), bytes.end())));
  }
  for (int peer : neighbours) {
    MUSTER_ASSIGN_OR_RETURN(const std::string bytes,
                            meeting.Await(AddressKey(prefix, peer, context.rank), peer, deadline));
    MUSTER_RETURN_IF_ERROR(ConnectPair(context, peer, bytes, deadline));
    // Of two neighbours one connects to the other's listening address, the other accepts at its
    // own.
    addresses.push_back(SocketAddress({bytes.begin(), bytes.end()}));
  }
  if (SetTcpLivenessAt(addresses) < static_cast<int>(neighbours.size())) {
    return Internal("the sockets of Gloo's connections were not found");
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<RingLink>> ConnectGlooRing(StoreMeeting& meeting, const std::string& prefix,
                                                  int rank, int size, Deadline deadline) {
  MUSTER_RETURN_IF_ERROR(CheckGloo());
  IgnoreBrokenPipes();
  std::shared_ptr<Context> context;
  MUSTER_RETURN_IF_ERROR(MakeContext(meeting.address(), rank, size, deadline, &context));
  Status connected;
  {
    const StoreMeeting::OnCancel close(meeting, [&] {
      for (int peer : Neighbours(rank, size)) {
        (void)Guarded("close", [&] { context->getPair(peer)->close(); });
      }
    });
    connected = ConnectPairs(meeting, prefix, *context, deadline);
  }
  if (meeting.cancelled()) return Cancelled("forming the gang was aborted");
  MUSTER_RETURN_IF_ERROR(connected);
  MUSTER_ASSIGN_OR_RETURN(auto link, GlooLink::Start(std::move(context)));
  return std::unique_ptr<RingLink>(std::move(link));
}

}  // namespace muster
