// ControllerOptions: the configuration of the controller. Values; docs/job-lifecycle.md describes
// the purpose of each deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/job_spec/job_spec.h"

namespace muster {

struct SchedulerSnapshot;
struct SchedulePlan;

// What a pass of the scheduler was given, and what it planned; both only during the call.
using ScheduleObserver = std::function<void(const SchedulerSnapshot& snapshot,
                                            const SchedulePlan& plan, std::int64_t unix_ms)>;

// Waits that are the same in every cluster.
inline constexpr Duration kSuspectAfter = std::chrono::milliseconds(1500);  // of silence
inline constexpr Duration kPrepareDeadline = std::chrono::seconds(30);
inline constexpr Duration kLaunchDeadline = std::chrono::seconds(60);  // until all have a process
inline constexpr Duration kAbortDeadline = std::chrono::seconds(30);   // until Quiesced, plus grace
inline constexpr Duration kCancelGrace = std::chrono::seconds(5);
// How long a job over its time limit, or to be suspended without a deadline, may save its state.
inline constexpr Duration kStopGrace = std::chrono::seconds(60);

struct ControllerOptions {
  std::string cluster = "muster";                     // sent to workers
  std::uint64_t epoch = 0;                            // sent to workers
  Duration lease = std::chrono::seconds(10);          // of silence until an unprobed node is lost
  Duration form_deadline = std::chrono::minutes(10);  // until every rank did its first collective
  Duration first_backoff = std::chrono::milliseconds(500);  // from the second failure without
  Duration max_backoff = std::chrono::seconds(10);          // progress on, doubling
  int heartbeat_ms = 500;
  // Each committed checkpoint is read again this long after its last reading; zero: only on
  // request.
  Duration scrub_interval = std::chrono::hours(6);
  std::uint64_t verify_bytes_per_second = 0;  // of the first reading; 0: no limit
  bool allow_faults = false;                  // users may cause faults
  // 64 unpredictable hexadecimal digits, new at each call; none: no token.
  std::function<std::string()> new_token;
  // Further requirements for a submitted job; none: no requirement. Pure.
  std::function<Status(const JobSpec&)> check_job;
  ScheduleObserver on_pass;        // of each pass that plans something; none: not called
  std::size_t max_events = 10000;  // kept in memory, of the whole cluster
  // A job that has been over for so long leaves memory for the store's archive; zero: never.
  Duration retain = std::chrono::days(7);
  Duration archive_retain = std::chrono::days(365);  // since its end, until it is deleted; 0: never
  Duration lost_node_retain = std::chrono::days(7);  // of a node without jobs; zero: for ever
};

}  // namespace muster
