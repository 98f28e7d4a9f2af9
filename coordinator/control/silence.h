// Silent nodes: how they become suspect, how other nodes probe them, and when they are lost.
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
// `due` is when the timer was to fire.
void CompensateForStall(Transaction& tx, std::optional<TimePoint> due);

void MarkSuspect(Transaction& tx, NodeEntry& node, const std::string& why);
void MarkAlive(Transaction& tx, NodeEntry& node);
void CheckSilence(Transaction& tx, NodeEntry& node);
// Decides from what is known now whether a suspect node is lost.
void DetectLostNode(Transaction& tx, NodeEntry& node);

void Handle(Transaction& tx, const NodeName& from, const ProbeResult& message);

}  // namespace muster::control
