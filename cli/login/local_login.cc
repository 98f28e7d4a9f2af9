#include "cli/login/local_login.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "common/base/clock.h"
#include "common/base/json.h"
#include "common/base/unique_fd.h"
#include "common/control_pipe/packet_socket.h"

namespace muster {
namespace {

constexpr std::string_view kPrefix = "unix:";
constexpr auto kAnswerLimit = std::chrono::seconds(20);

Result<PacketSocket> Connect(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return InvalidArgument("a socket's path has 107 bytes at most, and '" + path + "' is longer");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Unavailable("no coordinator logs in at " + path + ": " +
                       ErrnoStatus(errno, "connect").message());
  return PacketSocket(std::move(fd));
}

}  // namespace

bool IsLocalLogin(const std::string& address) { return address.starts_with(kPrefix); }

Result<LocalLogin> LogInLocally(const std::string& address, const std::string& csr_pem) {
  MUSTER_ASSIGN_OR_RETURN(PacketSocket socket, Connect(address.substr(kPrefix.size())));
  MUSTER_RETURN_IF_ERROR(socket.Send(csr_pem));
  const Result<Packet> packet = socket.Receive(Deadline::After(kAnswerLimit));
  if (!packet.ok())
    return Unavailable("the coordinator at " + address +
                       " does not answer: " + packet.status().message());
  const auto answer = nlohmann::json::parse(packet->data, nullptr, /*allow_exceptions=*/false);
  const auto text = [&](const char* name) {
    const auto found = answer.is_object() ? answer.find(name) : answer.end();
    return found != answer.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (const std::string error = text("error"); !error.empty())
    return answer.value("again", false) ? Unavailable(error) : PermissionDenied(error);
  LocalLogin login{.user = text("user"),
                   .certificate_pem = text("certificate_pem"),
                   .coordinator = text("coordinator"),
                   .cluster = text("cluster"),
                   .ca_pem = text("ca_pem")};
  if (login.certificate_pem.empty() || login.cluster.empty())
    return Unavailable("what answers at " + address + " is no coordinator");
  return login;
}

}  // namespace muster
