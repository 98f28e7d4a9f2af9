// The states that rank-seconds are accounted to, and the usage of jobs by state.
//
// docs/goodput.md defines where each state begins and ends. Usage is kept in whole microseconds of
// ranks, so that sums are exact. Plain, comparable, copyable values; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace muster {

// The order is that of tables and of the figures.
enum class TimeState {
  kStep = 0,    // up to a finished step that no attempt had finished before
  kRecompute,   // up to a finished step that had been finished before
  kCheckpoint,  // training waited for a checkpoint
  kRecovery,    // from a fault until a step is finished again
  kHang,        // nothing moved until the hang was detected
  kQueue,       // without slots: waiting for them, or suspended
  kIdle,        // in its slots, and none of the above
};
inline constexpr int kTimeStateCount = 7;
std::string_view Name(TimeState state);  // step, recompute, ...

using RankMicros = std::array<std::int64_t, kTimeStateCount>;

inline std::int64_t& Figure(RankMicros& micros, TimeState state) {
  return micros[static_cast<std::size_t>(state)];
}
inline std::int64_t Figure(const RankMicros& micros, TimeState state) {
  return micros[static_cast<std::size_t>(state)];
}

// What a job does, as far as usage accounting is concerned.
struct TimeUse {
  TimeState state = TimeState::kQueue;  // the state that its time is booked to; `training`: kStep
  bool training = false;                // booked when a step is finished
  int ranks = 0;                        // that it has, or waits for
  friend bool operator==(const TimeUse&, const TimeUse&) = default;
};

// Durable in the record of a job, or of a node for its slots that no rank has.
struct GoodputUsage {
  RankMicros micros = {};
  std::int64_t until_unix_ms = 0;  // all before is booked; 0: nothing was booked yet
  TimeUse doing;                   // since then
  friend bool operator==(const GoodputUsage&, const GoodputUsage&) = default;
};

struct TimeShare {
  std::string_view state;
  double seconds = 0;  // of ranks
};

// The usage of a job or of the cluster at one moment.
struct Goodput {
  RankMicros micros = {};
  std::int64_t under_way_micros = 0;  // since the newest finished step, not booked yet

  Goodput& operator+=(const Goodput& other);
  double total_seconds() const;  // booked time only
  double under_way_seconds() const { return static_cast<double>(under_way_micros) / 1e6; }
  // Share of kStep in the time with slots, 0 to 1; negative: it had none yet.
  double ratio() const;
  // One for each state.
  std::vector<TimeShare> Shares() const;
};

}  // namespace muster
