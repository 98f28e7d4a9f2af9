// Backoff: pauses between tries that fail, each twice as long as the one before.
//
// A value; one thread.
#pragma once

#include <algorithm>
#include <utility>

#include "common/base/clock.h"

namespace muster {

class Backoff {
 public:
  Backoff(Duration first, Duration longest) : first_(first), longest_(longest), next_(first) {}

  // After a failure: how long to wait now.
  Duration Next() { return std::exchange(next_, std::min(next_ * 2, longest_)); }
  // After a success.
  void Reset() { next_ = first_; }

 private:
  Duration first_;
  Duration longest_;
  Duration next_;
};

}  // namespace muster
