// ClockListener: a TCP port that sends the time of a node, so that other nodes can check whether
// they reach it and how far the two clocks differ.
//
// Each connection gets the milliseconds since the Unix epoch as decimal digits, and the end of the
// stream. Owned by a probe; has a thread of its own until it is destroyed. AskClock blocks up to
// `limit`; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "common/base/clock.h"
#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace muster {

class ClockListener {
 public:
  // At a free port of a numeric address.
  static Result<std::unique_ptr<ClockListener>> Open(const std::string& host);
  ~ClockListener();
  ClockListener(const ClockListener&) = delete;
  ClockListener& operator=(const ClockListener&) = delete;

  // HOST:PORT.
  const std::string& address() const { return address_; }

 private:
  ClockListener(UniqueFd listener, UniqueFd stop, std::string address);
  void Serve() const;

  const UniqueFd listener_;
  const UniqueFd stop_;
  const std::string address_;
  std::thread thread_;
};

// The other clock less this one, in milliseconds, to half of the time that the answer took.
Result<std::int64_t> AskClock(const std::string& address, Duration limit);

}  // namespace muster
