#include "trainer/distributed/gloo_connector.h"

#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include "trainer/distributed/gloo_link.h"
#include "trainer/distributed/net_probe.h"
#include "trainer/distributed/tcp_store.h"

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

std::string AddressKey(Generation generation, int from, int to) {
  return "muster/" + std::to_string(generation) + "/gloo/" + std::to_string(from) + "/" +
         std::to_string(to);
}

class GlooConnector final : public RingConnector {
 public:
  Result<std::unique_ptr<RingLink>> Connect(Rendezvous rendezvous, Deadline deadline) override {
    MUSTER_RETURN_IF_ERROR(CheckGloo());
    IgnoreBrokenPipes();
    auto link = ConnectAll(std::move(rendezvous), deadline);
    std::lock_guard lock(mutex_);
    connecting_.reset();
    if (cancelled_) return Cancelled("forming the gang was aborted");
    if (!link.ok()) {
      store_.reset();
      return link.status();
    }
    return std::unique_ptr<RingLink>(*std::move(link));
  }

  void Met() override { store_.reset(); }

  void Cancel() override {
    std::shared_ptr<Context> context;
    {
      std::lock_guard lock(mutex_);
      cancelled_ = true;
      context = connecting_;
    }
    changed_.notify_all();
    if (context == nullptr) return;
    for (int peer : Neighbours(context->rank, context->size)) {
      (void)Guarded("close", [&] { context->getPair(peer)->close(); });
    }
  }

  void Rearm() override {
    std::lock_guard lock(mutex_);
    cancelled_ = false;
  }

 private:
  // In the order in which edges are connected: by the smaller of the two ranks that an edge (r,
  // r+1) starts from. One order for all, so that no circle of ranks waits for one another.
  static std::vector<int> Neighbours(int rank, int size) {
    const int left = (rank + size - 1) % size;
    const int right = (rank + 1) % size;
    if (left == right) return {left};
    return rank == 0 ? std::vector<int>{right, left} : std::vector<int>{left, right};
  }

  Result<std::unique_ptr<GlooLink>> ConnectAll(Rendezvous rendezvous, Deadline deadline) {
    const int rank = rendezvous.rank;
    const int size = rendezvous.world_size;
    const Generation generation = rendezvous.generation;
    std::string address = rendezvous.bind_address;
    MUSTER_RETURN_IF_ERROR(OpenStore(std::move(rendezvous), &address, deadline));
    std::shared_ptr<Context> context;
    MUSTER_RETURN_IF_ERROR(MakeContext(address, rank, size, deadline, &context));
    for (int peer : Neighbours(rank, size)) {
      const std::vector<char> bytes = context->getPair(peer)->address().bytes();
      MUSTER_RETURN_IF_ERROR(
          store_->Set(AddressKey(generation, rank, peer), std::string(bytes.begin(), bytes.end())));
    }
    for (int peer : Neighbours(rank, size)) {
      MUSTER_ASSIGN_OR_RETURN(const std::string bytes,
                              WaitForKey(AddressKey(generation, peer, rank), peer, deadline));
      MUSTER_RETURN_IF_ERROR(ConnectPair(*context, peer, bytes, deadline));
    }
    return GlooLink::Start(std::move(context));
  }

  Status OpenStore(Rendezvous rendezvous, std::string* address, Deadline deadline) {
    const bool serves = rendezvous.listen_fd.valid() || rendezvous.serve_store;
    StoreEndpoint endpoint{rendezvous.master_address, rendezvous.master_port,
                           std::move(rendezvous.listen_fd), rendezvous.serve_store};
    if (serves) {
      MUSTER_ASSIGN_OR_RETURN(store_, StoreSession::Open(std::move(endpoint), deadline));
    }
    MUSTER_ASSIGN_OR_RETURN(
        const std::string local,
        WaitForPort(rendezvous.master_address, rendezvous.master_port, deadline,
                    [this](Duration pause) { return PauseUnlessCancelled(pause); }));
    if (address->empty()) *address = local;
    if (!serves) {
      MUSTER_ASSIGN_OR_RETURN(store_, StoreSession::Open(std::move(endpoint), deadline));
    }
    return OkStatus();
  }

  Status MakeContext(const std::string& address, int rank, int size, Deadline deadline,
                     std::shared_ptr<Context>* context) {
    return Guarded("cannot listen on " + address, [&] {
      gloo::transport::tcp::attr attributes(address.c_str());
      *context = gloo::transport::tcp::CreateDevice(attributes)->createContext(rank, size);
      (*context)->setTimeout(std::max(deadline.RemainingMillis(), std::chrono::milliseconds(1)));
      for (int peer : Neighbours(rank, size)) (*context)->createPair(peer);
      std::lock_guard lock(mutex_);
      connecting_ = *context;
    });
  }

  // Pauses that grow: a neighbour is usually there within a millisecond, or seconds away.
  Result<std::string> WaitForKey(const std::string& key, int peer, Deadline deadline) {
    Duration pause = std::chrono::microseconds(200);
    for (;;) {
      MUSTER_ASSIGN_OR_RETURN(const bool found, store_->Has(key));
      if (found) return store_->Get(key);
      if (deadline.Expired()) {
        return DeadlineExceeded("rank " + std::to_string(peer) + " did not come in time");
      }
      if (!PauseUnlessCancelled(pause)) return Cancelled("forming the gang was aborted");
      pause = std::min<Duration>(2 * pause, std::chrono::milliseconds(5));
    }
  }

  static Status ConnectPair(Context& context, int peer, const std::string& bytes,
                            Deadline deadline) {
    const std::string what = "cannot connect to rank " + std::to_string(peer);
    const Status status = Guarded(what, [&] {
      context.getPair(peer)->connect(std::vector<char>(bytes.begin(), bytes.end()));
    });
    if (!status.ok() && deadline.Expired()) return DeadlineExceeded(what + " in time");
    return status;
  }

  // False as soon as Cancel was called.
  bool PauseUnlessCancelled(Duration pause) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, pause, [this] { return cancelled_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
  std::shared_ptr<Context> connecting_;  // while pairs may be waiting for their peer
  std::unique_ptr<StoreSession> store_;  // the trainer's thread alone
};

}  // namespace

std::unique_ptr<RingConnector> MakeGlooConnector() { return std::make_unique<GlooConnector>(); }

}  // namespace muster
