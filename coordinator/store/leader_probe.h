// LeaderProbe: notices that the process of a leader has ended, long before its lease does.
//
// It connects to the leader's address twice a second. A machine that refuses a connection where the
// same probe was answered before, and refuses it again a moment later, says that nothing listens
// there any more. Silence says nothing: the network, the machine or the process may stand still.
// An address that was never answered is never taken for a leader's end, so a firewall that refuses
// cannot make coordinators take the lead from each other in turn.
//
// Owned by EtcdLeadership while it waits. A thread of the probe's own connects and calls `gone`,
// once. The destructor waits for `gone`, never for the network.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "common/base/unique_fd.h"

namespace muster {

class LeaderProbe {
 public:
  // `address`: IP:PORT; of any other text nothing is ever found out.
  LeaderProbe(const std::string& address, std::function<void()> gone);
  ~LeaderProbe();
  LeaderProbe(const LeaderProbe&) = delete;
  LeaderProbe& operator=(const LeaderProbe&) = delete;

 private:
  UniqueFd stopped_;  // an eventfd
  std::thread thread_;
};

}  // namespace muster
