#include "coordinator/service/local_logins.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"
#include "common/runtime/worker_pool.h"
#include "common/telemetry/log.h"

namespace muster {
namespace {

Result<UniqueFd> ListenAt(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return InvalidArgument("--local-login: a socket's path has 107 bytes at most, and '" + path +
                           "' is longer");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "--local-login");
  struct stat was {};
  if (::lstat(path.c_str(), &was) == 0 && S_ISSOCK(was.st_mode)) ::unlink(path.c_str());
  // All may connect: whom it is for follows from the account.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), 0666) != 0 || ::listen(fd.get(), 64) != 0)
    return ErrnoStatus(errno, "--local-login: listen at " + path);
  return fd;
}

// Waits for the machine's databases.
Result<std::string> NameOf(uid_t uid) {
  std::vector<char> buffer(1 << 14);
  passwd entry{};
  passwd* found = nullptr;
  const int error = ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found);
  if (error != 0) return ErrnoStatus(error, "look up uid " + std::to_string(uid));
  if (found == nullptr)
    return PermissionDenied("this machine has no account of uid " + std::to_string(uid));
  return std::string(found->pw_name);
}

nlohmann::json ToJson(const Result<LoginService::Grant>& grant) {
  if (!grant.ok()) {
    const StatusCode code = grant.status().code();
    return {{"error", grant.status().message()},
            {"again", code == StatusCode::kUnavailable || code == StatusCode::kResourceExhausted}};
  }
  return {{"user", grant->user},
          {"certificate_pem", grant->chain_pem},
          {"coordinator", grant->coordinator},
          {"cluster", grant->cluster},
          {"ca_pem", grant->ca_pem}};
}

}  // namespace

struct LocalLogins::Impl {
  // One client; let go when it was answered, or has taken too long.
  struct Connection {
    Connection(EventLoop& loop, UniqueFd fd, uid_t peer)
        : packets(std::move(fd)), limit(loop), uid(peer) {}

    PacketSocket packets;
    std::optional<ReadWatch> request;  // until it has come
    Timer limit;
    const uid_t uid;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;

  Impl(EventLoop& on_loop, LoginService& service, UniqueFd fd, std::string at)
      : loop(on_loop),
        logins(service),
        path(std::move(at)),
        listen_fd(std::move(fd)),
        incoming(loop, listen_fd.get(), [this] { TakeOne(); }) {}

  ~Impl() {
    *alive = false;
    while (!connections.empty()) End(*connections.begin());
    ::unlink(path.c_str());
  }

  std::size_t CountOf(uid_t uid) const {
    return static_cast<std::size_t>(std::ranges::count(
        connections, uid, [](const auto& connection) { return connection->uid; }));
  }

  void TakeOne() {
    UniqueFd fd(::accept4(listen_fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ucred peer{};
    socklen_t size = sizeof peer;
    if (!fd.valid() || connections.size() >= kMaxConnections ||
        ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        CountOf(peer.uid) >= kMaxOfAnAccount)
      return;
    const auto connection = std::make_shared<Connection>(loop, std::move(fd), peer.uid);
    connections.insert(connection);
    connection->limit.StartAt(SystemClock().Now() + kLimit,
                              [this, connection] { End(connection); });
    connection->request.emplace(loop, connection->packets.fd(),
                                [this, connection] { Read(connection); });
  }

  void Read(const ConnectionPtr& connection) {
    connection->request.reset();
    Result<Packet> packet = connection->packets.Receive(Deadline::At({}));
    if (!packet.ok() || packet->data.size() > LoginService::kMaxRequestBytes)
      return End(connection);
    const bool taken =
        lookups.TrySubmit([this, alive = alive, connection, csr_pem = std::move(packet->data)] {
          const Result<std::string> account = NameOf(connection->uid);
          loop.Post([this, alive, connection, account, csr_pem] {
            if (*alive && connections.contains(connection)) LogIn(connection, account, csr_pem);
          });
        });
    if (!taken) Answer(connection, ResourceExhausted("too many log in at once; try again"));
  }

  void LogIn(const ConnectionPtr& connection, const Result<std::string>& account,
             const std::string& csr_pem) {
    if (!account.ok()) return Answer(connection, account.status());
    logins.LogInLocally(
        {*account, csr_pem, "unix:uid " + std::to_string(connection->uid)},
        [this, alive = alive, connection](const Result<LoginService::Grant>& grant) {
          if (*alive) Answer(connection, grant);
        });
  }

  void Answer(const ConnectionPtr& connection, const Result<LoginService::Grant>& grant) {
    // One that cannot take it at once has gone, or never reads.
    if (connections.contains(connection))
      (void)connection->packets.Send(ToJson(grant).dump(), {}, Deadline::At({}));
    End(connection);
  }

  void End(ConnectionPtr connection) {
    connection->limit.Cancel();
    connection->request.reset();
    connections.erase(connection);
  }

  EventLoop& loop;
  LoginService& logins;
  const std::string path;
  const UniqueFd listen_fd;
  const std::shared_ptr<bool> alive = std::make_shared<bool>(true);
  std::set<ConnectionPtr> connections;
  ReadWatch incoming;
  // Destroyed first, which waits for lookups.
  WorkerPool lookups{"accounts", 1, kMaxConnections};
};

Result<std::unique_ptr<LocalLogins>> LocalLogins::Listen(EventLoop& loop, LoginService& logins,
                                                         const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(UniqueFd fd, ListenAt(path));
  return std::unique_ptr<LocalLogins>(
      new LocalLogins(std::make_unique<Impl>(loop, logins, std::move(fd), path)));
}

LocalLogins::LocalLogins(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalLogins::~LocalLogins() = default;

}  // namespace muster
