// Silent nodes: suspected, probed by other nodes, judged.
//
// Free functions over the event under way (transaction.h); private to coordinator/control; one
// thread.
#pragma once

#include <optional>
#include <string>

#include "coordinator/control/transaction.h"

namespace muster::control {

// After a change of `session` or `suspect`.
void UpdateProbers(Transaction& tx, const NodeEntry& node);

// A node is not silent while the coordinator does not run: messages sent then are still to be read.
// `due` is when it was to run.
void CompensateForStall(Transaction& tx, std::optional<TimePoint> due);

void MarkSuspect(Transaction& tx, NodeEntry& node, const std::string& why);
void MarkAlive(Transaction& tx, NodeEntry& node);
void CheckSilence(Transaction& tx, NodeEntry& node);
// Judges a suspect node by what is known now.
void DetectLostNode(Transaction& tx, NodeEntry& node);

void Handle(Transaction& tx, const NodeName& from, const ProbeResult& message);

}  // namespace muster::control
