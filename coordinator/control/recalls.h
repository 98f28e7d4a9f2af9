// Recalls: archived jobs come back into memory while their checkpoints are read again (readings.h).
//
// Ids are random, so an id is a place in a round through the archive that takes one scrub interval
// by the clock of the day. When its place is reached, a job that has succeeded is read from the
// store, a few at a time, and what was read last more than half an interval ago is read again. A
// coordinator that restarts goes on where the clock is: nothing of the round is stored, and nothing
// of a job but its checkpoints' results. A client's request recalls a job at once.
//
// The state is State::recalls. A recalled job stays archived: lists, look-ups and goodput omit
// it, and its changes are written to the archive.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>

#include "coordinator/control/transaction.h"

namespace muster::control {

// The coordinator starts: the round goes on.
void BeginRecalls(Transaction& tx);

// When RunRecalls has something to do; empty: not before the next event.
std::optional<TimePoint> NextRecall(const State& state);

// Forgets the jobs whose reading is over, and recalls those whose turn it is.
void RunRecalls(Transaction& tx);

void On(Transaction& tx, const ArchivedJobRead& read);
void On(Transaction& tx, const VerifyRequested& request);
// What the request began continues, without a reply.
void On(Transaction& tx, const CallerGone& gone);

}  // namespace muster::control
