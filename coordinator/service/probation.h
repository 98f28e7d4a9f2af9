// Probation: which connections may stay that have not proved yet that they mean well.
//
// gRPC 1.51 bounds neither what it keeps of a header nor how many calls a client takes back, so
// each connection has a budget until a call on it is admitted, and there are few such connections
// at once. Others wait in the kernel's backlog. Where it is full, the oldest that had its time
// gives way to the next in line: a client that goes on needs a few round trips, so silence and
// floods shut no other out.
//
// Owned by a ConnectionDoor, under its mutex. Pure: time is an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/base/clock.h"

namespace muster {

struct ProbationLimits {
  std::size_t connections = 256;          // at once
  std::uint64_t bytes = 2 << 20;          // that one may send
  std::uint64_t bytes_of_all = 64 << 20;  // that all of them may have sent
  Duration time = std::chrono::seconds(30);
  // How long more than kBehind of what one has sent may wait to be read. gRPC reads on while there
  // is something to read, and each such client holds one of its few threads: there may be one.
  Duration behind = std::chrono::milliseconds(100);
};

class Probation {
 public:
  using Id = std::uint64_t;  // rises with each connection
  // At least so long each has, however many wait: before its first bytes, and in all.
  static constexpr Duration kSilentTimeout = std::chrono::milliseconds(50);
  static constexpr Duration kTimeout = std::chrono::milliseconds(500);

  explicit Probation(ProbationLimits limits) : limits_(limits) {}

  // For one more: where it is full, the oldest that had its timeout goes and is added to `gone`.
  // Zero: there is room. Else it is worth another look after so long.
  Duration MakeRoom(TimePoint now, std::vector<Id>* gone);
  // The caller has made room.
  void Begin(Id id, TimePoint now) { open_[id].begun = now; }
  // It has been admitted, or is gone.
  void End(Id id);
  static constexpr std::uint64_t kBehind = 32 << 10;

  // What it has sent up to now, and what of it has not been read.
  void Sent(Id id, std::uint64_t bytes, std::uint64_t unread, TimePoint now);
  // Those that have sent too much or took too long go.
  std::vector<Id> TakeOverdue(TimePoint now);

  std::size_t size() const { return open_.size(); }

 private:
  struct Open {
    TimePoint begun;
    std::uint64_t bytes = 0;
    std::optional<TimePoint> behind_since;
  };
  const ProbationLimits limits_;
  std::map<Id, Open> open_;  // the oldest first
  std::uint64_t bytes_ = 0;  // of all
};

}  // namespace muster
