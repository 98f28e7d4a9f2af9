// The messages that a gang's nodes receive, made from the records. After a Hello the same messages
// are sent again.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <string>
#include <vector>

#include "coordinator/control/transaction.h"

namespace muster::control {

// Failure domains, by node rank.
std::vector<std::string> DomainsOf(const AttemptRecord& attempt,
                                   const std::map<NodeName, NodeEntry>& nodes);

void SendPrepare(Transaction& tx, JobEntry& job, int node_rank);
// To the nodes from `first_node` on, without `last_node` itself.
void SendLaunch(Transaction& tx, JobEntry& job, int first_node, int last_node);

// `eager`: before it is durable; only where a rank's exit has caused it.
void SendAbort(Transaction& tx, JobEntry& job, int node_rank, bool eager = false);
// Nothing is sent to a spare, or to a node whose ranks have ended.
void SendStop(Transaction& tx, JobEntry& job, const GangNode& member);

}  // namespace muster::control
