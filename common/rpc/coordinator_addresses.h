// CoordinatorAddresses: where a client looks for the coordinator that leads.
//
// Given is a list of addresses and names of SRV records, of which one coordinator leads at a time.
// What a client reports moves it on: a standby names the leader, which is tried next; after one
// that does not answer comes the next of the list. A named leader that fails is forgotten, so that
// the list is always returned to; and when all of the list have failed, names are resolved anew.
//
// Owned by a client and shared by its parts; any thread, of those that may block for Resolve.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/net/dns_service.h"
#include "common/rpc/endpoint.h"

namespace muster {

// How long a client of several coordinators waits for a connection, and before it calls the next
// one or, while none leads, all of them again.
inline constexpr std::chrono::seconds kConnectLimit{2};
inline constexpr std::chrono::milliseconds kFollowPause{20};
inline constexpr std::chrono::milliseconds kElectionPause{200};

class CoordinatorAddresses {
 public:
  // "IP:PORT" or "dnssrv+_muster._tcp.DOMAIN", separated by commas; kInvalidArgument.
  static Result<std::vector<std::string>> Parse(const std::string& list);
  static std::string Text(const std::vector<std::string>& addresses);  // what Parse reads

  using ResolveName = std::function<Result<std::vector<std::string>>(const std::string& name)>;
  // Empty: the coordinator is found by an endpoint file.
  explicit CoordinatorAddresses(const std::vector<std::string>& list,
                                ResolveName resolve = ResolveService);
  CoordinatorAddresses(const CoordinatorAddresses&) = delete;
  CoordinatorAddresses& operator=(const CoordinatorAddresses&) = delete;

  // Asks the DNS, if there are names and it is time; blocks for seconds. Addresses that were known
  // before stay where it does not answer. kUnavailable: there is none to call.
  Status Resolve();

  std::vector<std::string> all() const;
  // The one to call; empty without a list, unless a leader is named.
  std::string Current() const;
  // Whether there is another one to call when the current one fails.
  bool HasOthers() const;
  // A call to `address` has failed; `leader` is whom it named, if anybody. A report about an
  // address that is not the current one any more changes nothing.
  void Failed(const std::string& address, const std::string& leader);

 private:
  std::vector<std::string> given_;  // addresses
  std::vector<std::string> names_;
  const ResolveName resolve_;
  mutable std::mutex mutex_;
  std::vector<std::string> addresses_;
  std::size_t next_ = 0;    // of the addresses
  std::size_t failed_ = 0;  // since the names were resolved
  bool is_stale_;           // they are to be resolved
  std::string leader_;      // named by a standby; empty: the list counts
};

// What a client was given: the current one of the coordinators on other machines (TLS), or, where
// there are none, the endpoint file at `path`. Resolves names.
Result<Endpoint> FindCoordinator(CoordinatorAddresses& addresses, const std::string& path);

}  // namespace muster
