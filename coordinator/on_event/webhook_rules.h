// WebhookRules: the hosts to which the coordinator posts events, as its operator configures them
// (--webhook-hosts). A job file names the URL; without these rules any user could make the
// coordinator, which runs in a network of its own, send requests to anything it reaches.
//
// Two checks, both needed: CheckUrl when a job is submitted and before each post, CheckAddress on
// the very address that is about to be connected, whatever the name resolves to by then.
//
// Plain values; any thread.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/net/ip_address.h"

namespace muster {

class WebhookRules {
 public:
  // Nothing is posted.
  WebhookRules() = default;

  // Commas between entries:
  //   HOST         that name or address, by the ports 80 of http and 443 of https
  //   HOST:PORT    that port alone
  //   NETWORK/LEN  10.0.0.0/8: listed names may resolve to loopback, link-local and private
  //                addresses in it
  // kInvalidArgument names the entry.
  static Result<WebhookRules> Parse(const std::string& text);

  // kFailedPrecondition if no host is listed at all, kPermissionDenied if this one is not;
  // kInvalidArgument for an invalid URL.
  Status CheckUrl(const std::string& url) const;

  // kPermissionDenied for loopback, link-local, private and otherwise special addresses, unless
  // they are listed themselves or in a network.
  Status CheckAddress(const IpAddress& address) const;

 private:
  std::set<std::pair<std::string, int>> hosts_;  // with port; 0: the scheme's
  std::set<IpAddress> addresses_;
  std::vector<IpPrefix> networks_;
};

// Whether the address reaches the same host from anywhere on the Internet.
bool IsPublic(const IpAddress& address);

}  // namespace muster
