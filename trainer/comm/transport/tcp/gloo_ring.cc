#include "trainer/comm/transport/tcp/gloo_ring.h"

#include <dlfcn.h>
#include <signal.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gloo/transport/address.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/address.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include "trainer/comm/rendezvous/peer_proof.h"
#include "trainer/comm/rendezvous/tcp_liveness.h"
#include "trainer/comm/transport/tcp/gloo_link.h"

namespace muster {
namespace {

using gloo::transport::Context;

// Beside those of GlooLink.
constexpr std::uint64_t kProofSlot = 2;

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

// Gloo's listening socket, one for each pair, takes the first who connects. So each end says over
// the pair what only a rank of the generation can know of the other's nonce, which came through the
// store. It says so as soon as the pair is connected, and hears the other end when all pairs are:
// no edge of the ring waits for another one's proof. Where an unauthenticated peer has taken the
// place and says nothing, the true neighbour is refused and ends the generation, so this end waits
// as long as for anything else.
class PairProof {
 public:
  PairProof(const std::string& token, const std::string& prefix, int rank, int peer,
            const std::string& own_nonce, const std::string& peer_nonce)
      : peer_(peer),
        said_(PeerProof(token, "ring " + prefix, rank, peer, peer_nonce)),
        expected_(PeerProof(token, "ring " + prefix, peer, rank, own_nonce)),
        heard_(kProofBytes, '\0') {}

  Status Begin(Context& context) {
    return Guarded(What(), [&] {
      hears_ = context.createUnboundBuffer(heard_.data(), heard_.size());
      says_ = context.createUnboundBuffer(said_.data(), said_.size());
      hears_->recv(peer_, kProofSlot);
      says_->send(peer_, kProofSlot);
    });
  }

  Status Await(Deadline deadline) {
    bool came = false;
    const auto left = [&] {
      return std::max(deadline.RemainingMillis(), std::chrono::milliseconds(1));
    };
    const Status status = Guarded(What(), [&] {
      came = hears_->waitRecv(nullptr, left()) && says_->waitSend(nullptr, left());
    });
    if (!status.ok() && deadline.Expired())
      return DeadlineExceeded(What() + " did not come in time");
    MUSTER_RETURN_IF_ERROR(status);
    if (came && SameProof(heard_, expected_)) return OkStatus();
    return Unavailable("the connection to rank " + std::to_string(peer_) +
                       " was taken by a client that does not know this generation's token");
  }

  // Any thread: Await does not wait, or waits no longer. Closing a pair does not wake who waits.
  void Abort() {
    hears_->abortWaitRecv();
    says_->abortWaitSend();
  }

 private:
  std::string What() const { return "proof of rank " + std::to_string(peer_); }

  const int peer_;
  std::string said_;
  const std::string expected_;
  std::string heard_;
  std::unique_ptr<gloo::transport::UnboundBuffer> hears_;
  std::unique_ptr<gloo::transport::UnboundBuffer> says_;
};

class PairProofs {
 public:
  // `proof` has begun.
  void Add(std::unique_ptr<PairProof> proof) {
    std::lock_guard lock(mutex_);
    if (aborted_) proof->Abort();
    proofs_.push_back(std::move(proof));
  }
  // The thread that adds them.
  Status Await(Deadline deadline) {
    for (const auto& proof : proofs_) MUSTER_RETURN_IF_ERROR(proof->Await(deadline));
    return OkStatus();
  }
  // Any thread.
  void Abort() {
    std::lock_guard lock(mutex_);
    aborted_ = true;
    for (const auto& proof : proofs_) proof->Abort();
  }

 private:
  std::mutex mutex_;
  bool aborted_ = false;
  std::vector<std::unique_ptr<PairProof>> proofs_;
};

Status ConnectPairs(StoreMeeting& meeting, const std::string& token, const std::string& prefix,
                    Context& context, PairProofs& proofs, Deadline deadline) {
  const auto neighbours = Neighbours(context.rank, context.size);
  std::vector<sockaddr_storage> addresses;
  const std::string nonce = Nonce();
  for (int peer : neighbours) {
    const std::vector<char> bytes = context.getPair(peer)->address().bytes();
    addresses.push_back(SocketAddress(bytes));
    MUSTER_RETURN_IF_ERROR(meeting.Publish(AddressKey(prefix, context.rank, peer),
                                           nonce + std::string(bytes.begin(), bytes.end())));
  }
  for (int peer : neighbours) {
    MUSTER_ASSIGN_OR_RETURN(const std::string word,
                            meeting.Await(AddressKey(prefix, peer, context.rank), peer, deadline));
    if (word.size() <= kNonceBytes) return Internal("a broken address of a neighbour");
    const std::string bytes = word.substr(kNonceBytes);
    MUSTER_RETURN_IF_ERROR(ConnectPair(context, peer, bytes, deadline));
    if (!token.empty()) {
      auto proof = std::make_unique<PairProof>(token, prefix, context.rank, peer, nonce,
                                               word.substr(0, kNonceBytes));
      MUSTER_RETURN_IF_ERROR(proof->Begin(context));
      proofs.Add(std::move(proof));
    }
    // One of two neighbours connects to the other's listening address, the other accepts at its
    // own.
    addresses.push_back(SocketAddress({bytes.begin(), bytes.end()}));
  }
  MUSTER_RETURN_IF_ERROR(proofs.Await(deadline));
  if (SetTcpLivenessAt(addresses) < static_cast<int>(neighbours.size())) {
    return Internal("the sockets of Gloo's connections were not found");
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<RingLink>> ConnectGlooRing(StoreMeeting& meeting, const std::string& token,
                                                  const std::string& prefix, int rank, int size,
                                                  Deadline deadline) {
  MUSTER_RETURN_IF_ERROR(CheckGloo());
  IgnoreBrokenPipes();
  std::shared_ptr<Context> context;
  MUSTER_RETURN_IF_ERROR(MakeContext(meeting.address(), rank, size, deadline, &context));
  PairProofs proofs;
  Status connected;
  {
    const StoreMeeting::OnCancel close(meeting, [&] {
      proofs.Abort();
      for (int peer : Neighbours(rank, size)) {
        (void)Guarded("close", [&] { context->getPair(peer)->close(); });
      }
    });
    connected = ConnectPairs(meeting, token, prefix, *context, proofs, deadline);
  }
  if (meeting.cancelled()) return Cancelled("forming the gang was aborted");
  MUSTER_RETURN_IF_ERROR(connected);
  MUSTER_ASSIGN_OR_RETURN(auto link, GlooLink::Start(std::move(context)));
  return std::unique_ptr<RingLink>(std::move(link));
}

}  // namespace muster
