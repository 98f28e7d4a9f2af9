// ControllerOptions: what the controller is configured with. Values; docs/job-lifecycle.md says
// what each deadline is for.
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
  std::string cluster = "muster";                            // told to workers and in Version
  std::uint64_t epoch = 0;                                   // told to workers
  Duration suspect_after = std::chrono::milliseconds(1500);  // of silence; other nodes are asked
  Duration lease = std::chrono::seconds(10);  // of silence until a node nobody can look at is lost
  Duration prepare_deadline = std::chrono::seconds(30);
  Duration launch_deadline = std::chrono::seconds(60);  // Launch until every rank has a process
  Duration form_deadline = std::chrono::minutes(10);    // until every rank did its first collective
  Duration abort_deadline = std::chrono::seconds(30);   // Abort until Quiesced; grace is added
  Duration error_timeout = std::chrono::seconds(2);     // a trainer that reported an error exits
  // A rank that lost its peers: until its cause shows.
  Duration symptom_timeout = std::chrono::milliseconds(300);
  Duration park =
      std::chrono::seconds(1);  // a rank called out of its collectives parks, or is killed
  // Launch to first step of a gang with kept processes, at least; a job's ten slowest steps if
  // more.
  Duration tier_budget = std::chrono::seconds(10);
  Duration cancel_grace = std::chrono::seconds(5);
  Duration first_backoff = std::chrono::milliseconds(500);  // from the second failure without
  Duration max_backoff = std::chrono::seconds(10);          // progress on, doubling
  // A job over its time limit, or to be suspended by no given time, saves its state.
  Duration stop_grace = std::chrono::seconds(60);
  int heartbeat_ms = 500;
  int progress_ms = 900;
  // Each committed checkpoint is read again so long after it was last; zero: never by itself.
  Duration scrub_interval = std::chrono::hours(6);
  std::uint64_t scrub_bytes_per_second = 100'000'000;  // at most, on a node
  std::uint64_t verify_bytes_per_second = 0;           // of the first reading; 0: no limit
  bool allow_faults = false;                           // users may cause faults
  // 64 hexadecimal digits that nobody can guess, anew at each call; none: no token.
  std::function<std::string()> new_token;
  // What else a submitted job must fulfil; none: nothing. Pure.
  std::function<Status(const JobSpec&)> check_job;
  std::size_t max_events = 10000;  // kept in memory, of the whole cluster
};

}  // namespace muster
