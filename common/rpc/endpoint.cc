#include "common/rpc/endpoint.h"

#include <arpa/inet.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "common/base/files.h"

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

}  // namespace

Status WriteEndpoint(const std::string& path, const Endpoint& endpoint) {
  const nlohmann::json json = {
      {"grpc", endpoint.grpc}, {"http", endpoint.http}, {"pid", endpoint.pid}};
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
        " is not {\"grpc\", \"http\", \"pid\"}; restart the coordinator to write it anew");
  return Endpoint{json["grpc"], json["http"], json["pid"]};
}

Status CheckListenAddress(const std::string& address) {
  if (address.starts_with("unix:") && address.size() > 5) return OkStatus();
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || !IsPort(std::string_view(address).substr(colon + 1)))
    return InvalidArgument("listen address '" + address +
                           "' is not HOST:PORT; use 127.0.0.1:PORT or unix:PATH");
  if (IsLoopbackHost(address.substr(0, colon))) return OkStatus();
  return PermissionDenied("listening on '" + address +
                          "' is refused until TLS is configured; use 127.0.0.1:PORT or unix:PATH");
}

}  // namespace muster
