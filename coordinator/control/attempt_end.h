// The end of an attempt: from the first sign of a failure, or a decision, through Abort and
// Quiesced, to the job's next attempt or its end.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <string>

#include "coordinator/control/transaction.h"

namespace muster::control {

// Whether the end of its gang may leave processes to the next one.
bool MayKeep(const JobEntry& job);

// The attempt is broken: aborts it, unless it is already being aborted.
void Fail(Transaction& tx, JobEntry& job, Failure failure);

void OnTrainerError(Transaction& tx, JobEntry& job, int rank, const TrainerError& error);
// Ranks lost peers, or parked.
void OnSymptom(Transaction& tx, JobEntry& job, int rank, const TrainerError& error);

// Ends the gang because of what was reported: errors whose exits did not follow, and symptoms.
void FaultTimeoutOver(Transaction& tx, JobEntry& job);

// The node lacks ranks that it had; `nothing_hosted`: it has none of the job.
void RanksMissing(Transaction& tx, JobEntry& job, const NodeName& node, bool nothing_hosted);

// Ends the attempt for the reason that `record.stop` gives.
void AbortStopped(Transaction& tx, JobEntry& job);

// Ends a healthy attempt so that another one continues from its state.
void EndOnPurpose(Transaction& tx, JobEntry& job, CauseKind kind, const std::string& reason);

void BeginAbort(Transaction& tx, JobEntry& job, AbortOptions options);
void Handle(Transaction& tx, const NodeName& node, const Quiesced& message);
// Ends an aborting attempt whose nodes have all quiesced and whose commit record is written.
void MaybeEndAttempt(Transaction& tx, JobEntry& job);

}  // namespace muster::control
