// CoordinatorAddresses: where a client looks for the coordinator that leads.
//
// Given is a list, of which one leads at a time. What a client reports moves it on: a standby names
// the leader, which is tried next; after one that does not answer comes the next of the list. A
// named leader that fails is forgotten, so that the list is always returned to.
//
// Owned by a client and shared by its parts; any thread.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/rpc/endpoint.h"

namespace muster {

class CoordinatorAddresses {
 public:
  // "IP:PORT[,IP:PORT...]"; kInvalidArgument.
  static Result<std::vector<std::string>> Parse(const std::string& list);

  // Empty: the coordinator is found by an endpoint file.
  explicit CoordinatorAddresses(std::vector<std::string> addresses);
  CoordinatorAddresses(const CoordinatorAddresses&) = delete;
  CoordinatorAddresses& operator=(const CoordinatorAddresses&) = delete;

  const std::vector<std::string>& all() const { return addresses_; }
  // The one to call; empty without a list, unless a leader is named.
  std::string Current() const;
  // Whether there is another one to call when the current one fails.
  bool HasOthers() const;
  // A call to `address` has failed; `leader` is whom it named, if anybody. A report about an
  // address that is not the current one any more changes nothing.
  void Failed(const std::string& address, const std::string& leader);

 private:
  const std::vector<std::string> addresses_;
  mutable std::mutex mutex_;
  std::size_t next_ = 0;  // of the list
  std::string leader_;    // named by a standby; empty: the list counts
};

// What a client was given: the current one of the coordinators on other machines (TLS), or, where
// there are none, the endpoint file at `path`.
Result<Endpoint> FindCoordinator(const CoordinatorAddresses& addresses, const std::string& path);

}  // namespace muster
