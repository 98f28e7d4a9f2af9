// A service's servers by the DNS: SRV records (RFC 2782) and the addresses of their targets.
//
// The DNS says which programs are called, and no more: a called program proves by its certificate
// who it is. Free functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct ServiceRecord {
  std::uint16_t priority = 0;
  std::uint16_t weight = 0;
  std::uint16_t port = 0;
  std::string target;
  friend bool operator==(const ServiceRecord&, const ServiceRecord&) = default;
};

// OK for "_SERVICE._tcp.DOMAIN".
Status CheckServiceName(const std::string& name);

// What a DNS message answers: SRV records, by priority, then the heavier ones first; IPv4 or IPv6
// addresses. Other records in it are passed over, and so is the target "." (no such service).
// kDataLoss: it is no whole message, or a record is not as it should be. Pure.
Result<std::vector<ServiceRecord>> ParseServiceAnswer(std::string_view message);
Result<std::vector<std::string>> ParseAddressAnswer(std::string_view message);

// "IP:PORT" of the servers, in the order of their records, 32 at most. Asks the name servers of
// /etc/resolv.conf, and blocks for some seconds where they are silent. kNotFound: there are none;
// kUnavailable: no name server says.
Result<std::vector<std::string>> ResolveService(const std::string& name);

}  // namespace muster
