#include "trainer/comm/transport/shared/unix_mesh.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/proc_reader.h"
#include "trainer/comm/interrupt.h"
#include "trainer/comm/rank_env.h"
#include "trainer/comm/rendezvous/peer_proof.h"

namespace muster {
namespace {

// What ranks send each other: yes and details, or no and why.
struct Answer {
  bool yes = false;
  std::string words;
};

std::string Encode(const Answer& answer) { return (answer.yes ? "+" : "-") + answer.words; }

Answer Decode(const std::string& text) {
  if (text.empty()) return {};
  return {text[0] == '+', text.substr(1)};
}

// Abstract sockets reach as far as a network namespace does, and connecting asks for one user.
Result<std::string> HostIdentity() {
  struct stat info {};
  if (::stat("/proc/self/ns/net", &info) != 0) return ErrnoStatus(errno, "stat /proc/self/ns/net");
  const std::string boot = BootId();
  if (boot.empty()) return Unavailable("the boot id cannot be read");
  return boot + "/" + std::to_string(info.st_ino) + "/" + std::to_string(::geteuid());
}

sockaddr_un AbstractAddress(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

Result<UniqueFd> ListenAt(const std::string& name, int size) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t length = 0;
  const sockaddr_un address = AbstractAddress(name, &length);
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(fd.get(), size) != 0) {
    return ErrnoStatus(errno, "listening on a Unix socket");
  }
  return fd;
}

Result<std::string> RandomName() {
  std::uint64_t words[2];
  if (::getrandom(words, sizeof(words), 0) != sizeof(words)) return ErrnoStatus(errno, "getrandom");
  char text[64];
  std::snprintf(text, sizeof(text), "muster-%016llx%016llx",
                static_cast<unsigned long long>(words[0]),
                static_cast<unsigned long long>(words[1]));
  return std::string(text);
}

Status CheckMemfd() {
  const UniqueFd fd(::memfd_create("muster", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  return fd.valid() ? OkStatus() : ErrnoStatus(errno, "memfd_create");
}

// Of this user's processes, beyond the ranks of a host.
constexpr std::size_t kMaxGuests = 4096;
constexpr Duration kTryAgain = std::chrono::milliseconds(5);

// One attempt to connect one group.
class MeshMaker {
 public:
  MeshMaker(StoreMeeting& meeting, const std::string& prefix, int rank, int size, Deadline deadline)
      : meeting_(meeting),
        prefix_(prefix + "shm/"),
        rank_(rank),
        size_(size),
        deadline_(deadline) {}

  Result<UnixMesh> Make() {
    const StoreMeeting::OnCancel cancel(meeting_, [this] { interrupt_.Raise(); });
    MUSTER_RETURN_IF_ERROR(Publish("place", Introduce()));
    MUSTER_ASSIGN_OR_RETURN(const Answer plan, Decide("plan", [this] { return Plan(); }));
    if (!plan.yes) return UnixMesh{nullptr, plan.words, rank_ == 0 && one_host_};
    const Status connected = Connect(plan.words);
    if (connected.code() == StatusCode::kCancelled ||
        connected.code() == StatusCode::kDeadlineExceeded) {
      return connected;
    }
    MUSTER_RETURN_IF_ERROR(Publish("done", {connected.ok(), connected.message()}));
    MUSTER_ASSIGN_OR_RETURN(const Answer verdict, Decide("verdict", [this] { return Verdict(); }));
    if (!verdict.yes) return UnixMesh{nullptr, verdict.words, rank_ == 0};
    MUSTER_ASSIGN_OR_RETURN(auto link, UnixLink::Start(std::move(peers_), rank_));
    return UnixMesh{.link = std::move(link), .why_not = ""};
  }

 private:
  Status Publish(const std::string& key, const Answer& answer) {
    return meeting_.Publish(prefix_ + key + "/" + std::to_string(rank_), Encode(answer));
  }

  Result<std::vector<Answer>> AwaitAll(const std::string& key) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                            meeting_.AwaitAll(prefix_ + key + "/", size_, deadline_));
    std::vector<Answer> answers;
    for (const std::string& text : texts) answers.push_back(Decode(text));
    return answers;
  }

  // The host and the name of the socket.
  Answer Introduce() {
    const Result<bool> disabled = SharedMemoryDisabled(std::getenv);
    if (!disabled.ok()) return {false, disabled.status().message()};
    if (*disabled) return {false, std::string(kShmDisableVariable) + " is set"};
    const auto ready = [this]() -> Result<std::string> {
      MUSTER_RETURN_IF_ERROR(CheckMemfd());
      MUSTER_ASSIGN_OR_RETURN(const std::string host, HostIdentity());
      MUSTER_ASSIGN_OR_RETURN(name_, RandomName());
      MUSTER_ASSIGN_OR_RETURN(listener_, ListenAt(name_, size_));
      return host + " " + name_;
    }();
    return {ready.ok(), ready.ok() ? *ready : ready.status().message()};
  }

  // What rank 0 thinks, as all learn it.
  template <typename Think>
  Result<Answer> Decide(const std::string& key, Think think) {
    if (rank_ != 0) {
      MUSTER_ASSIGN_OR_RETURN(const std::string text,
                              meeting_.Await(prefix_ + key + "/0", 0, deadline_));
      return Decode(text);
    }
    MUSTER_ASSIGN_OR_RETURN(const Answer decision, think());
    MUSTER_RETURN_IF_ERROR(Publish(key, decision));
    return decision;
  }

  // The names of all sockets. Waits for all even if the first says no: the meeting ends as one.
  Result<Answer> Plan() {
    Answer plan{true, ""};
    std::string first_host;
    std::string why_not;
    MUSTER_ASSIGN_OR_RETURN(const std::vector<Answer> places, AwaitAll("place"));
    for (int r = 0; r < size_; ++r) {
      const Answer& place = places[static_cast<std::size_t>(r)];
      const std::size_t space = place.words.find(' ');
      const std::string host = place.words.substr(0, space);
      std::string problem;
      if (!place.yes) {
        problem = ": " + place.words;
      } else if (first_host.empty()) {
        first_host = host;
      } else if (host != first_host) {
        problem = " is on another host, network or user";
        one_host_ = false;
      }
      if (!problem.empty() && why_not.empty()) why_not = "rank " + std::to_string(r) + problem;
      if (problem.empty()) plan.words += place.words.substr(space + 1) + " ";
    }
    return why_not.empty() ? plan : Answer{false, why_not};
  }

  Result<Answer> Verdict() {
    Answer verdict{true, ""};
    MUSTER_ASSIGN_OR_RETURN(const std::vector<Answer> all, AwaitAll("done"));
    for (int r = 0; r < size_; ++r) {
      const Answer& done = all[static_cast<std::size_t>(r)];
      if (!done.yes && verdict.yes)
        verdict = {false, "rank " + std::to_string(r) + ": " + done.words};
    }
    return verdict;
  }

  // To the ranks before this one; those behind it come here.
  Status Connect(const std::string& sockets) {
    peers_.resize(static_cast<std::size_t>(size_));
    std::size_t at = 0;
    for (int r = 0; r < rank_; ++r) {
      const std::size_t end = sockets.find(' ', at);
      MUSTER_RETURN_IF_ERROR(ConnectTo(r, sockets.substr(at, end - at)));
      at = end + 1;
    }
    for (int missing = size_ - 1 - rank_; missing > 0;) {
      MUSTER_RETURN_IF_ERROR(AwaitAnyReadable());
      PacketSocket peer(
          UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)));
      if (peer.valid() && IsOwnUser(peer)) guests_.push_back(std::move(peer));
      if (guests_.size() > kMaxGuests) guests_.erase(guests_.begin());
      missing -= HearGuests();
    }
    guests_.clear();
    return OkStatus();
  }

  Status ConnectTo(int rank, const std::string& name) {
    PacketSocket peer(
        UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
    socklen_t length = 0;
    const sockaddr_un address = AbstractAddress(name, &length);
    while (!peer.valid() ||
           ::connect(peer.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      // Others may have filled its queue, which it empties once it listens to it.
      if (errno != EAGAIN) return ErrnoStatus(errno, "connecting to rank " + std::to_string(rank));
      MUSTER_RETURN_IF_ERROR(PauseBeforeNextTry());
    }
    if (!IsOwnUser(peer)) {
      return PermissionDenied("rank " + std::to_string(rank) + "'s socket is another user's");
    }
    MUSTER_RETURN_IF_ERROR(peer.Send(Hello(rank_, rank, name)));
    peers_[static_cast<std::size_t>(rank)] = std::move(peer);
    return OkStatus();
  }

  Status PauseBeforeNextTry() {
    if (deadline_.Expired()) return DeadlineExceeded("not all ranks of the host listened in time");
    return interrupt_.Pause(kTryAgain) ? OkStatus() : Cancelled("forming the gang was aborted");
  }

  // The socket's name is drawn at random for this meeting, and came through the store.
  std::string Hello(int from, int to, const std::string& name) const {
    if (meeting_.token().empty()) return std::to_string(from);
    return std::to_string(from) + " " + PeerProof(meeting_.token(), "mesh", from, to, name);
  }

  // How many of the connected clients turn out to be ranks now. One that says something else is
  // sent away; one that says nothing keeps no rank waiting.
  int HearGuests() {
    int ranks = 0;
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const auto hello = guest->Receive(Deadline::After(Duration::zero()));
      if (hello.status().code() == StatusCode::kDeadlineExceeded) {
        ++guest;
        continue;
      }
      if (hello.ok() && Welcome(*guest, hello->data)) ++ranks;
      guest = guests_.erase(guest);
    }
    return ranks;
  }

  bool Welcome(PacketSocket& guest, const std::string& hello) {
    const int rank = std::atoi(hello.c_str());
    if (rank <= rank_ || rank >= size_ || !SameProof(hello, Hello(rank, rank_, name_)))
      return false;
    PacketSocket& place = peers_[static_cast<std::size_t>(rank)];
    if (place.valid()) return false;
    place = std::move(guest);
    return true;
  }

  static bool IsOwnUser(const PacketSocket& peer) {
    ucred credentials{};
    socklen_t length = sizeof(credentials);
    return ::getsockopt(peer.fd(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
           credentials.uid == ::geteuid();
  }

  // A client connects, or one that has connected speaks.
  Status AwaitAnyReadable() {
    std::vector<pollfd> entries = {{listener_.get(), POLLIN, 0}};
    for (const PacketSocket& guest : guests_) entries.push_back({guest.fd(), POLLIN, 0});
    const Status ready = interrupt_.AwaitAny(entries, deadline_);
    if (ready.code() == StatusCode::kCancelled) return Cancelled("forming the gang was aborted");
    if (ready.code() == StatusCode::kDeadlineExceeded)
      return DeadlineExceeded("not all ranks of the host connected in time");
    return ready;
  }

  StoreMeeting& meeting_;
  const std::string prefix_;
  const int rank_;
  const int size_;
  const Deadline deadline_;
  Interrupt interrupt_;   // by the meeting's Cancel
  bool one_host_ = true;  // no two ranks are known to be on different ones; rank 0's
  UniqueFd listener_;
  std::string name_;  // of the listener
  std::vector<PacketSocket> peers_;
  std::vector<PacketSocket> guests_;  // have connected, but said nothing yet
};

}  // namespace

Result<UnixMesh> ConnectUnixMesh(StoreMeeting& meeting, const std::string& prefix, int rank,
                                 int size, Deadline deadline) {
  return MeshMaker(meeting, prefix, rank, size, deadline).Make();
}

}  // namespace muster
