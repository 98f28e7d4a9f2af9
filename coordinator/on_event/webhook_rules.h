// WebhookRules: to which hosts the coordinator posts events, as its operator says it
// (--webhook-hosts). A job file names the URL; without these rules any user could have the
// coordinator, which stands in a network of its own, send requests to anything it reaches.
//
// Two checks, both needed: CheckUrl when a job is submitted and before each post, CheckAddress of
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

  // kFailedPrecondition where no host is listed at all, kPermissionDenied where this one is not;
  // kInvalidArgument for what is no URL.
  Status CheckUrl(const std::string& url) const;

  // kPermissionDenied for loopback, link-local, private and otherwise special addresses, unless
  // they are listed by themselves or in a network.
  Status CheckAddress(const IpAddress& address) const;

 private:
  std::set<std::pair<std::string, int>> hosts_;  // with port; 0: the scheme's
  std::set<IpAddress> addresses_;
  std::vector<IpPrefix> networks_;
};

// Whether everybody on the Internet would reach the same host by it.
bool IsPublic(const IpAddress& address);

}  // namespace muster
