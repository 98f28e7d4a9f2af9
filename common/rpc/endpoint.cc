#include "common/rpc/endpoint.h"

#include <arpa/inet.h>

#include <string_view>

#include "common/base/files.h"
#include "common/base/json.h"

namespace muster {
namespace {

bool IsPort(std::string_view text) {
  if (text.empty() || text.size() > 5) return false;
  if (text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  return std::stoi(std::string(text)) <= 65535;
}

bool IsLoopbackHost(const std::string& host) {
  if (host == "localhost" || host == "[::1]") return true;
  in_addr address{};
  if (::inet_pton(AF_INET, host.c_str(), &address) != 1) return false;
  return (ntohl(address.s_addr) >> 24) == 127;
}

bool IsIpAddress(const std::string& host) {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return true;
  in6_addr v6{};
  return host.size() > 2 && host.front() == '[' && host.back() == ']' &&
         ::inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &v6) == 1;
}

}  // namespace

Status WriteEndpoint(const std::string& path, const Endpoint& endpoint) {
  nlohmann::json json = {{"grpc", endpoint.grpc}, {"http", endpoint.http}, {"pid", endpoint.pid}};
  if (!endpoint.grpc_tls.empty()) json["grpc_tls"] = endpoint.grpc_tls;
  if (!endpoint.http_tls.empty()) json["http_tls"] = endpoint.http_tls;
  if (!endpoint.grpc_join.empty()) json["grpc_join"] = endpoint.grpc_join;
  if (endpoint.epoch != 0) json["epoch"] = endpoint.epoch;
  if (!endpoint.page_key.empty()) json["page_key"] = endpoint.page_key;
  return WriteFileAtomically(path, json.dump() + "\n", 0600);
}

Result<Endpoint> ReadEndpoint(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, 64 << 10));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto is_string = [&](const char* key) {
    return json.contains(key) && json[key].is_string();
  };
  if (!json.is_object() || !is_string("grpc") || !is_string("http") || !json.contains("pid") ||
      !json["pid"].is_number_integer())
    return DataLoss(
        "endpoint file " + path +
        " is not {\"grpc\", \"http\", \"pid\"}; restart the coordinator to write it again");
  Endpoint endpoint{json["grpc"], json["http"], json["pid"]};
  if (is_string("grpc_tls")) endpoint.grpc_tls = json["grpc_tls"];
  if (is_string("http_tls")) endpoint.http_tls = json["http_tls"];
  if (is_string("grpc_join")) endpoint.grpc_join = json["grpc_join"];
  if (json.contains("epoch") && json["epoch"].is_number_unsigned()) endpoint.epoch = json["epoch"];
  if (is_string("page_key")) endpoint.page_key = json["page_key"];
  return endpoint;
}

bool IsUnixAddress(const std::string& address) {
  return address.starts_with("unix:") && address.size() > 5;
}

Status CheckListenAddress(const std::string& address) {
  if (IsUnixAddress(address)) return OkStatus();
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || !IsPort(std::string_view(address).substr(colon + 1)))
    return InvalidArgument("listen address '" + address +
                           "' is not HOST:PORT; use 127.0.0.1:PORT or unix:PATH");
  if (IsLoopbackHost(address.substr(0, colon))) return OkStatus();
  return PermissionDenied("listening in plain text on '" + address +
                          "' is refused; use 127.0.0.1:PORT or unix:PATH, and for other machines "
                          "--tls-listen or --tls-http");
}

Status CheckTlsListenAddress(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  const bool has_port =
      colon != std::string::npos && IsPort(std::string_view(address).substr(colon + 1));
  if (!has_port || !IsIpAddress(address.substr(0, colon)))
    return InvalidArgument("'" + address + "' is not IP:PORT, such as 10.0.0.1:7000 or [::1]:7000");
  return OkStatus();
}

HostPort SplitAddress(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  HostPort out{address.substr(0, colon),
               static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1)))};
  if (out.host.starts_with('[') && out.host.ends_with(']'))
    out.host = out.host.substr(1, out.host.size() - 2);
  return out;
}

std::string JoinAddress(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace muster
