#include "trainer/comm/transport/shared/unix_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace muster {
namespace {

constexpr std::string_view kGoodbye = "goodbye";
constexpr std::string_view kMemory = "memory";
constexpr std::string_view kAlarm = "alarm ";
constexpr std::size_t kLongestReason = 512;

Deadline AtOnce() { return Deadline::After(Duration::zero()); }

std::string Rank(int rank) { return "rank " + std::to_string(rank); }

}  // namespace

Result<std::unique_ptr<UnixLink>> UnixLink::Start(std::vector<PacketSocket> peers, int rank) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return ErrnoStatus(errno, "eventfd");
  std::unique_ptr<UnixLink> link(new UnixLink(std::move(peers), rank, std::move(wake)));
  link->watcher_ = std::thread([watched = link.get()] { watched->RunWatch(); });
  return link;
}

UnixLink::UnixLink(std::vector<PacketSocket> peers, int rank, UniqueFd wake)
    : peers_(std::move(peers)), rank_(rank), wake_(std::move(wake)) {}

UnixLink::~UnixLink() {
  std::unique_lock lock(mutex_);
  const std::optional<Status> broken = broken_;
  for (PacketSocket& peer : peers_) {
    if (!broken && !alarmed_ && peer.valid()) (void)peer.Send(kGoodbye, {}, AtOnce());
  }
  lock.unlock();
  if (broken) Alarm(*broken);
  (void)::eventfd_write(wake_.get(), 1);
  watcher_.join();
  // What is unread when a socket closes would look like a broken connection to the peer.
  for (PacketSocket& peer : peers_) {
    while (peer.valid() && peer.Receive(AtOnce()).ok()) {
    }
  }
}

void UnixLink::Listen(News news) {
  std::lock_guard lock(mutex_);
  news_ = std::move(news);
  for (const auto& [peer, why] : unheard_) news_(peer, why);
  unheard_.clear();
}

void UnixLink::Report(int peer, Status why) {
  std::lock_guard lock(mutex_);
  if (!why.ok() && !broken_) broken_ = why;
  if (news_) {
    news_(peer, why);
  } else {
    unheard_.emplace_back(peer, std::move(why));
  }
  changed_.notify_all();
}

bool UnixLink::Hear(int peer) {
  for (;;) {
    auto packet = peers_[static_cast<std::size_t>(peer)].Receive(AtOnce());
    if (packet.status().code() == StatusCode::kDeadlineExceeded) return true;
    if (!packet.ok()) {
      Report(peer, Unavailable("lost " + Rank(peer) + ": its process has ended"));
      return false;
    }
    if (packet->data == kGoodbye) {
      Report(peer, OkStatus());
      return false;
    }
    if (packet->data.starts_with(kAlarm)) {
      Report(peer, Unavailable(Rank(peer) +
                               " gave up its generation: " + packet->data.substr(kAlarm.size())));
      return false;
    }
    if (packet->data == kMemory && packet->fds.size() == 1) {
      std::lock_guard lock(mutex_);
      memory_.push_back(std::move(packet->fds.front()));
      changed_.notify_all();
    }
  }
}

void UnixLink::RunWatch() {
  std::vector<pollfd> entries = {{wake_.get(), POLLIN, 0}};
  for (const PacketSocket& peer : peers_) entries.push_back({peer.fd(), POLLIN, 0});
  for (;;) {
    if (::poll(entries.data(), entries.size(), -1) < 0 && errno != EINTR) return;
    if (entries[0].revents != 0) return;
    // First who has ended: others that give up because of it are not the reason.
    for (const short event : {short{POLLHUP}, short{POLLIN}}) {
      for (std::size_t i = 1; i < entries.size(); ++i) {
        if (entries[i].fd < 0 || (entries[i].revents & event) == 0) continue;
        // poll passes over negative descriptors.
        if (!Hear(static_cast<int>(i) - 1)) entries[i].fd = -1;
      }
    }
  }
}

Status UnixLink::SendMemory(int fd) {
  for (PacketSocket& peer : peers_) {
    if (peer.valid()) {
      MUSTER_RETURN_IF_ERROR(peer.Send(kMemory, {fd}, Deadline::After(std::chrono::seconds(5))));
    }
  }
  return OkStatus();
}

Result<UniqueFd> UnixLink::AwaitMemory(Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool woken =
      changed_.wait_until(lock, deadline.when(), [&] { return broken_ || !memory_.empty(); });
  if (broken_) return *broken_;
  if (!woken) return DeadlineExceeded("rank 0 did not hand out shared memory in time");
  UniqueFd fd = std::move(memory_.front());
  memory_.pop_front();
  return fd;
}

Result<SharedMemory> UnixLink::Map(std::size_t bytes, int kept, Deadline deadline) {
  UniqueFd fd;
  if (rank_ == 0) {
    MUSTER_ASSIGN_OR_RETURN(fd, kept >= 0 ? KeptMemoryFile(kept, bytes) : MakeMemoryFile(bytes));
    MUSTER_RETURN_IF_ERROR(SendMemory(fd.get()));
  } else {
    MUSTER_ASSIGN_OR_RETURN(fd, AwaitMemory(deadline));
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return ErrnoStatus(errno, "fstat of shared memory");
    if (static_cast<std::size_t>(info.st_size) != bytes) {
      return Internal("rank 0 shares " + std::to_string(info.st_size) + " bytes and " +
                      Rank(rank_) + " " + std::to_string(bytes) +
                      ": the ranks do not share the same regions");
    }
  }
  MUSTER_ASSIGN_OR_RETURN(auto data, MapDescriptor(fd.get(), bytes));
  return SharedMemory{std::move(data), std::make_shared<const UniqueFd>(std::move(fd))};
}

void UnixLink::Alarm(const Status& reason) {
  std::lock_guard lock(mutex_);
  if (std::exchange(alarmed_, true)) return;
  const std::string words = std::string(kAlarm) + reason.message().substr(0, kLongestReason);
  for (PacketSocket& peer : peers_) {
    if (peer.valid()) (void)peer.Send(words, {}, AtOnce());
  }
}

void UnixLink::Stop() {
  std::lock_guard lock(mutex_);
  if (!broken_) broken_ = Cancelled("the communicator was aborted");
  changed_.notify_all();
}

}  // namespace muster
