// TokenBucket: a burst of this many, then this many a second.
//
// Value type; pure: time is an argument and must not go back.
#pragma once

#include <algorithm>

#include "common/base/clock.h"

namespace muster {

class TokenBucket {
 public:
  TokenBucket(double at_once, double per_second)
      : capacity_(at_once), per_second_(per_second), left_(at_once) {}

  // False: the limit is reached.
  bool Take(TimePoint now) {
    if (last_ != TimePoint())
      left_ = std::min(capacity_, left_ + ToSeconds(now - last_) * per_second_);
    last_ = now;
    if (left_ < 1) return false;
    left_ -= 1;
    return true;
  }

 private:
  double capacity_;
  double per_second_;
  double left_;
  TimePoint last_;
};

}  // namespace muster
