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

struct ControllerOptions {
  std::string cluster = "muster";                            // sent to workers and in Version
  std::uint64_t epoch = 0;                                   // sent to workers
  Duration suspect_after = std::chrono::milliseconds(1500);  // of silence; then it is probed
  Duration lease = std::chrono::seconds(10);  // of silence until an unprobed node is lost
  Duration prepare_deadline = std::chrono::seconds(30);
  Duration launch_deadline = std::chrono::seconds(60);  // Launch until every rank has a process
  Duration form_deadline = std::chrono::minutes(10);    // until every rank did its first collective
  Duration abort_deadline = std::chrono::seconds(30);   // Abort until Quiesced; grace is added
  Duration error_timeout = std::chrono::seconds(2);     // a trainer that reported an error exits
  // A rank that lost its peers: how long to wait for the cause.
  Duration symptom_timeout = std::chrono::milliseconds(300);
  Duration park =
      std::chrono::seconds(1);  // a rank called out of its collectives parks, or is killed
  // Launch to first step of a gang with parked processes, at least; more if a job's ten slowest
  // steps take longer.
  Duration tier_budget = std::chrono::seconds(10);
  Duration cancel_grace = std::chrono::seconds(5);
  Duration first_backoff = std::chrono::milliseconds(500);  // from the second failure without
  Duration max_backoff = std::chrono::seconds(10);          // progress on, doubling
  // How long a job over its time limit, or to be suspended without a deadline, may save its state.
  Duration stop_grace = std::chrono::seconds(60);
  int heartbeat_ms = 500;
  int progress_ms = 900;
  // Each committed checkpoint is read again this long after its last reading; zero: only on
  // request.
  Duration scrub_interval = std::chrono::hours(6);
  std::uint64_t scrub_bytes_per_second = 100'000'000;  // at most, on a node
  std::uint64_t verify_bytes_per_second = 0;           // of the first reading; 0: no limit
  bool allow_faults = false;                           // users may cause faults
  // 64 unpredictable hexadecimal digits, new at each call; none: no token.
  std::function<std::string()> new_token;
  // Further requirements for a submitted job; none: no requirement. Pure.
  std::function<Status(const JobSpec&)> check_job;
  std::size_t max_events = 10000;  // kept in memory, of the whole cluster
  // A job that has been over for so long leaves memory for the store's archive; zero: never.
  Duration retain = std::chrono::days(7);
  Duration archive_retain = std::chrono::days(365);  // since its end, until it is deleted; 0: never
  Duration lost_node_retain = std::chrono::days(7);  // of a node without jobs; zero: for ever
};

}  // namespace muster
