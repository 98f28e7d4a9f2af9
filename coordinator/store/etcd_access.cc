#include "coordinator/store/etcd_access.h"

#include <algorithm>
#include <string_view>

#include "common/rpc/endpoint.h"

namespace muster {
namespace {

constexpr std::string_view kPlain = "http://";
constexpr std::string_view kTls = "https://";
constexpr char kDefaultPort[] = "2379";

std::string WithPort(std::string_view host) {
  const bool bare_ipv6 = host.starts_with('[') && host.ends_with(']');
  const bool has_port = !bare_ipv6 && host.find(':') != std::string_view::npos;
  return std::string(host) + (has_port ? "" : std::string(":") + kDefaultPort);
}

}  // namespace

Result<std::vector<EtcdAddress>> ParseEtcdUrls(const std::string& urls) {
  std::vector<EtcdAddress> members;
  bool tls = true;
  std::string_view rest = urls;
  for (bool more = true; more;) {
    const std::size_t comma = rest.find(',');
    more = comma != std::string_view::npos;
    std::string_view entry = rest.substr(0, comma);
    rest.remove_prefix(more ? comma + 1 : rest.size());
    if (entry.starts_with(kTls)) {
      tls = true;
      entry.remove_prefix(kTls.size());
    } else if (entry.starts_with(kPlain)) {
      tls = false;
      entry.remove_prefix(kPlain.size());
    } else if (members.empty()) {
      return InvalidArgument("--etcd " + urls +
                             ": the first member has no scheme; write https://HOST:PORT,...");
    }
    if (entry.ends_with('/')) entry.remove_suffix(1);
    if (entry.empty() || entry.find_first_of("/@ \t") != std::string_view::npos)
      return InvalidArgument("--etcd " + urls + ": '" + std::string(entry) +
                             "' is no HOST:PORT; write https://HOST:PORT,...");
    const EtcdAddress member{WithPort(entry), tls};
    if (!tls && !CheckListenAddress(member.address).ok())
      return InvalidArgument("--etcd: " + member.address +
                             " is not on loopback, where alone plain text is spoken; start that "
                             "etcd with TLS, and write https://");
    members.push_back(member);
  }
  return members;
}

Status CheckEtcdAccess(const EtcdAccess& access) {
  const bool tls = std::ranges::any_of(access.members, &EtcdAddress::tls);
  for (const auto& [flag, file] :
       {std::pair("--etcd-ca", &access.ca), std::pair("--etcd-cert", &access.certificate),
        std::pair("--etcd-key", &access.key)}) {
    if (tls && file->empty())
      return InvalidArgument(std::string("--etcd https:// needs ") + flag +
                             ": etcd and the coordinator show each other certificates");
    if (!tls && !file->empty())
      return InvalidArgument(std::string(flag) + " has no effect on http://; write https://");
  }
  if (access.user.empty() != access.password_file.empty())
    return InvalidArgument("--etcd-user and --etcd-password-file need each other");
  return OkStatus();
}

}  // namespace muster
