#include "coordinator/on_event/webhook_rules.h"

#include <algorithm>
#include <optional>

#include "common/job_spec/http_url.h"

namespace muster {
namespace {

// Addresses outside the public Internet (IANA's registries of special-purpose addresses).
constexpr const char* kSpecial[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",    "::/96",
    "100::/64",      "2001::/23",       "2001:db8::/32",  "fc00::/7",       "fe80::/10",
    "fec0::/10",     "ff00::/8"};

// IPv6 addresses that stand for an IPv4 one: its place in them.
struct Embedding {
  const char* prefix;
  int first_byte;
};
constexpr Embedding kEmbeddings[] = {{"::ffff:0:0/96", 12}, {"64:ff9b::/96", 12}, {"2002::/16", 2}};

IpAddress Unwrapped(const IpAddress& address) {
  for (const Embedding& one : kEmbeddings)
    if (IpPrefix::Parse(one.prefix)->Contains(address))
      return IpAddress::FromV4(address.bytes() + one.first_byte);
  return address;
}

}  // namespace

bool IsPublic(const IpAddress& address) {
  const IpAddress plain = Unwrapped(address);
  return std::none_of(std::begin(kSpecial), std::end(kSpecial),
                      [&](const char* prefix) { return IpPrefix::Parse(prefix)->Contains(plain); });
}

Result<WebhookRules> WebhookRules::Parse(const std::string& text) {
  WebhookRules rules;
  std::size_t begin = 0;
  while (!text.empty() && begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    begin = end + 1;
    if (entry.find('/') != std::string::npos) {
      MUSTER_ASSIGN_OR_RETURN(IpPrefix network, IpPrefix::Parse(entry));
      rules.networks_.push_back(network);
      continue;
    }
    MUSTER_ASSIGN_OR_RETURN(const HostAndPort host, ParseHostAndPort(entry));
    rules.hosts_.emplace(host.host, host.port);
    if (const auto address = IpAddress::Parse(host.host); address.ok())
      rules.addresses_.insert(*address);
  }
  return rules;
}

Status WebhookRules::CheckUrl(const std::string& text) const {
  MUSTER_ASSIGN_OR_RETURN(const HttpUrl url, ParseHttpUrl(text));
  if (hosts_.empty())
    return FailedPrecondition(
        "this coordinator posts to no host; ask its operator to start it with --webhook-hosts " +
        url.host + ", or follow the job with 'muster events JOB -f -o jsonl'");
  const int usual = url.scheme == "https" ? 443 : 80;
  if (hosts_.contains({url.host, url.port}) ||
      (url.port == usual && hosts_.contains({url.host, 0})))
    return OkStatus();
  return PermissionDenied("this coordinator does not post to " + url.host + ":" +
                          std::to_string(url.port) +
                          "; ask its operator to add it to --webhook-hosts");
}

Status WebhookRules::CheckAddress(const IpAddress& address) const {
  const IpAddress plain = Unwrapped(address);
  if (IsPublic(plain) || addresses_.contains(plain) ||
      std::any_of(networks_.begin(), networks_.end(),
                  [&](const IpPrefix& network) { return network.Contains(plain); }))
    return OkStatus();
  return PermissionDenied(
      "its host resolves to " + address.ToString() +
      ", which is not a public address; if that is right, add the address or its "
      "network to --webhook-hosts");
}

}  // namespace muster
