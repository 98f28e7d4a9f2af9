// Time. Everything that decides takes time as an argument; only the edges ask a Clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace muster {

// Monotonic; never compared between machines.
using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint Now() const = 0;
  // Milliseconds since the Unix epoch. For people and files, never for decisions.
  virtual std::int64_t UnixMillis() const = 0;
};

// The system's clocks. Thread-safe.
const Clock& SystemClock();

inline double ToSeconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// Seconds come from flags, files and other machines. More than a century, either way, is a century,
// so that the result can be added to a time point; what is no number is 0.
Duration FromSeconds(double seconds);

// A point in time by which a wait must end. An expired deadline stays expired: Remaining() is
// then zero, never "for ever".
class Deadline {
 public:
  static Deadline At(TimePoint when) { return Deadline(when); }
  static Deadline After(Duration d) { return Deadline(SystemClock().Now() + d); }

  TimePoint when() const { return when_; }
  bool Expired() const { return SystemClock().Now() >= when_; }
  Duration Remaining() const {
    const TimePoint now = SystemClock().Now();
    return now >= when_ ? Duration::zero() : when_ - now;
  }
  std::chrono::milliseconds RemainingMillis() const {
    return std::chrono::ceil<std::chrono::milliseconds>(Remaining());
  }

 private:
  explicit Deadline(TimePoint when) : when_(when) {}
  TimePoint when_;
};

}  // namespace muster
