// The nodes of gangs, and the slots that their processes hold: taken, refused, dropped, orphaned.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/control/transaction.h"

namespace muster::control {

// The node will need a Release when the job ends.
void NoteUnreleased(JobEntry& job, const NodeName& node);

// `pids` are all processes of the job on this node that survived SIGKILL.
void MarkLeaked(Transaction& tx, NodeEntry& node, const JobId& id,
                const std::vector<std::int64_t>& pids);

// The attempt ends without proof that the node has no process of it.
void Orphan(Transaction& tx, JobEntry& job, GangNode& member);

// The node cannot run the job. The job is not placed there for a while, unless this is the first
// time and `first_pauses` is false.
void Refuse(Transaction& tx, JobEntry& job, const NodeName& node, std::string why,
            bool first_pauses = true);

void DropSpare(Transaction& tx, JobEntry& job, const NodeName& name, const std::string& why);
// Less of the node is left for shared spares: jobs for which it is too little lose it.
void DropCrowdedSpares(Transaction& tx, const NodeName& name, const std::string& why);

}  // namespace muster::control
