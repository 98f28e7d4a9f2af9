// Stopping a gang without a loss: at a step boundary, its state saved. And what stops a job.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>
#include <string>

#include "coordinator/control/transaction.h"

namespace muster::control {

// What a gang does that is asked to stop, for people.
inline constexpr char kStopsAndSaves[] = "it stops at a step boundary and saves its state";

// It is to stop by then, if not sooner.
void ShortenStop(GangStop& stop, TimePoint deadline);

// The attempt runs. At `deadline` it is ended anyway.
void StopGang(Transaction& tx, JobEntry& job, const std::string& reason,
              std::optional<TimePoint> deadline);

// Every rank has exited, or the deadline has passed: the attempt ends.
void GangStopped(Transaction& tx, JobEntry& job, const std::string& reason);
// True: the stop caused the exit, and all that follows from it is done.
bool ExitedByStop(Transaction& tx, JobEntry& job, const ProcessExit& exit);

void StopExpired(Transaction& tx, JobEntry& job);
// A cancel outranks a suspension; otherwise the first request counts.
void StopJob(Transaction& tx, JobEntry& job, StopKind kind, std::string reason);
// Stops it if its time limit has passed.
void StopIfOutOfTime(Transaction& tx, JobEntry& job);

}  // namespace muster::control
