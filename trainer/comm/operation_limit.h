// OperationLimit: how long an operation of a gang may take, shared by the communicators of its
// groups.
//
// A job sets it for its steps (COLLECTIVE_TIMEOUT_SECONDS). Work that takes some ranks much longer
// than others raises it for as long as it lasts, or the ranks that are ready would take the others
// for lost. Set by the trainer's thread; read by any.
#pragma once

#include <algorithm>
#include <atomic>

#include "common/base/clock.h"

namespace muster {

class OperationLimit {
 public:
  explicit OperationLimit(Duration limit) : limit_(limit) {}

  Duration get() const { return limit_.load(std::memory_order_relaxed); }
  // For an operation that begins now.
  Deadline deadline() const { return Deadline::After(get()); }

  // While it lives the limit is `least` or longer. All ranks make it and destroy it between the
  // same two operations.
  class AtLeast {
   public:
    AtLeast(OperationLimit& limit, Duration least) : limit_(limit), before_(limit.get()) {
      limit_.limit_.store(std::max(before_, least), std::memory_order_relaxed);
    }
    ~AtLeast() { limit_.limit_.store(before_, std::memory_order_relaxed); }
    AtLeast(const AtLeast&) = delete;
    AtLeast& operator=(const AtLeast&) = delete;

   private:
    OperationLimit& limit_;
    const Duration before_;
  };

 private:
  std::atomic<Duration> limit_;
};

}  // namespace muster
