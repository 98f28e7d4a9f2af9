#include "common/net/dns_service.h"

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netdb.h>
#include <resolv.h>

#include <algorithm>
#include <array>
#include <functional>
#include <tuple>

#include "common/base/clock.h"

namespace muster {
namespace {

constexpr std::size_t kMaxAddresses = 32;
constexpr Duration kLimit = std::chrono::seconds(8);
constexpr int kMaxNameBytes = 255;
constexpr int kServiceHead = 6;  // priority, weight, port

bool IsHostName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         name.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
             std::string_view::npos;
}

Status Damaged(const std::string& what) { return DataLoss("an answer of the DNS " + what); }

using Take = std::function<Status(const ns_msg&, const ns_rr&)>;

Status EachAnswer(std::string_view message, const Take& take) {
  ns_msg answer;
  if (::ns_initparse(reinterpret_cast<const unsigned char*>(message.data()),
                     static_cast<int>(message.size()), &answer) != 0)
    return Damaged("is not a whole message");
  if (ns_msg_getflag(answer, ns_f_qr) != 1 || ns_msg_getflag(answer, ns_f_tc) != 0 ||
      ns_msg_getflag(answer, ns_f_rcode) != ns_r_noerror)
    return Damaged("is cut off or an error");
  for (int i = 0; i < ns_msg_count(answer, ns_s_an); ++i) {
    ns_rr record;
    if (::ns_parserr(&answer, ns_s_an, i, &record) != 0) return Damaged("has a damaged record");
    if (ns_rr_class(record) == ns_c_in) MUSTER_RETURN_IF_ERROR(take(answer, record));
  }
  return OkStatus();
}

Result<ServiceRecord> ServiceOf(const ns_msg& answer, const ns_rr& record) {
  const unsigned char* const data = ns_rr_rdata(record);
  std::array<char, NS_MAXDNAME> target{};
  const int length = ns_rr_rdlen(record) <= kServiceHead
                         ? -1
                         : ::dn_expand(ns_msg_base(answer), ns_msg_end(answer), data + kServiceHead,
                                       target.data(), static_cast<int>(target.size()));
  if (length < 0 || length != ns_rr_rdlen(record) - kServiceHead)
    return Damaged("has a damaged SRV record");
  const auto number = [&](int at) {
    return static_cast<std::uint16_t>(data[at] << 8 | data[at + 1]);
  };
  ServiceRecord service{number(0), number(2), number(4), target.data()};
  const bool is_none = service.target.empty() || service.target == ".";
  if (!is_none && (service.port == 0 || !IsHostName(service.target)))
    return Damaged("names a server that cannot be one");
  if (is_none) service.target.clear();
  return service;
}

// A resolver of its own, with these time limits.
class Resolver {
 public:
  Resolver() {
    usable_ = ::res_ninit(&state_) == 0;
    state_.retrans = 1;  // second
    state_.retry = 2;
  }
  ~Resolver() { ::res_nclose(&state_); }
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  Result<std::string> Ask(const std::string& name, ns_type type) {
    if (!usable_) return Unavailable("/etc/resolv.conf cannot be read");
    std::string answer(NS_MAXMSG, '\0');
    const int length = ::res_nquery(&state_, name.c_str(), ns_c_in, type,
                                    reinterpret_cast<unsigned char*>(answer.data()),
                                    static_cast<int>(answer.size()));
    const int error = state_.res_h_errno;
    if (length < 0 && (error == HOST_NOT_FOUND || error == NO_DATA))
      return NotFound("the DNS has no such record of " + name);
    if (length < 0)
      return Unavailable("no name server of /etc/resolv.conf says what " + name + " is");
    answer.resize(std::min(answer.size(), static_cast<std::size_t>(length)));
    return answer;
  }

 private:
  struct __res_state state_ {};
  bool usable_ = false;
};

void AddAddresses(Resolver& resolver, const ServiceRecord& service,
                  std::vector<std::string>* addresses, Status* failed) {
  for (const ns_type type : {ns_t_a, ns_t_aaaa}) {
    const Result<std::string> answer = resolver.Ask(service.target, type);
    const auto hosts = answer.ok() ? ParseAddressAnswer(*answer)
                                   : Result<std::vector<std::string>>(answer.status());
    if (!hosts.ok() && hosts.status().code() != StatusCode::kNotFound) *failed = hosts.status();
    if (!hosts.ok()) continue;
    for (const std::string& host : *hosts) {
      const bool v6 = host.find(':') != std::string::npos;
      std::string address = (v6 ? "[" + host + "]" : host) + ":" + std::to_string(service.port);
      if (addresses->size() < kMaxAddresses &&
          std::ranges::find(*addresses, address) == addresses->end())
        addresses->push_back(std::move(address));
    }
  }
}

}  // namespace

Status CheckServiceName(const std::string& name) {
  const std::size_t protocol = name.find("._tcp.");
  const bool good = name.starts_with('_') && protocol != std::string::npos && protocol > 1 &&
                    protocol + 6 < name.size() && name.find("..") == std::string::npos;
  if (good && IsHostName(name)) return OkStatus();
  return InvalidArgument("'" + name +
                         "' is no name of SRV records, such as _muster._tcp.example.org");
}

Result<std::vector<ServiceRecord>> ParseServiceAnswer(std::string_view message) {
  std::vector<ServiceRecord> services;
  MUSTER_RETURN_IF_ERROR(EachAnswer(message, [&](const ns_msg& answer, const ns_rr& record) {
    if (ns_rr_type(record) != ns_t_srv) return OkStatus();
    MUSTER_ASSIGN_OR_RETURN(ServiceRecord service, ServiceOf(answer, record));
    if (!service.target.empty()) services.push_back(std::move(service));
    return OkStatus();
  }));
  std::ranges::sort(services, {}, [](const ServiceRecord& one) {
    return std::tuple(one.priority, -one.weight, one.target, one.port);
  });
  return services;
}

Result<std::vector<std::string>> ParseAddressAnswer(std::string_view message) {
  std::vector<std::string> addresses;
  MUSTER_RETURN_IF_ERROR(EachAnswer(message, [&](const ns_msg&, const ns_rr& record) {
    const bool v4 = ns_rr_type(record) == ns_t_a;
    if (!v4 && ns_rr_type(record) != ns_t_aaaa) return OkStatus();
    if (ns_rr_rdlen(record) != (v4 ? sizeof(in_addr) : sizeof(in6_addr)))
      return Damaged("has a damaged address");
    std::array<char, INET6_ADDRSTRLEN> text{};
    ::inet_ntop(v4 ? AF_INET : AF_INET6, ns_rr_rdata(record), text.data(), text.size());
    addresses.emplace_back(text.data());
    return OkStatus();
  }));
  return addresses;
}

Result<std::vector<std::string>> ResolveService(const std::string& name) {
  const Deadline deadline = Deadline::After(kLimit);
  Resolver resolver;
  MUSTER_ASSIGN_OR_RETURN(const std::string answer, resolver.Ask(name, ns_t_srv));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<ServiceRecord> services, ParseServiceAnswer(answer));
  std::vector<std::string> addresses;
  Status failed;
  for (const ServiceRecord& service : services)
    if (!deadline.Expired()) AddAddresses(resolver, service, &addresses, &failed);
  if (!addresses.empty()) return addresses;
  if (!failed.ok()) return failed;
  return NotFound("the SRV records of " + name + " name no server that has an address");
}

}  // namespace muster
