// The stable JSON of jobs and nodes that several verbs print (docs/job-file.md, the CLI section),
// and the words for their states. Times are ISO 8601 in UTC; unknown values are null.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "cli/base/output.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

std::string StateWord(v1::JobState state);    // "running"
std::string StateWord(v1::NodeState state);   // "ready"
std::string StateWord(v1::RankState state);   // "exited"
std::string PhaseWord(v1::TrainPhase phase);  // "backward"; empty: not known

// "SIGKILL"; "signal 99" for an unnamed one.
std::string SignalName(int signal);
// "exited 0", "SIGKILL", or the state's word for a rank that has not ended.
std::string RankWord(const v1::RankStatus& rank);

// Whether a loss has been seen at all; the wire has no null.
bool HasLoss(const v1::Job& job);

// The sum over all shards; 0 when they are unknown.
std::uint64_t CheckpointBytes(const v1::CheckpointInfo& checkpoint);

Json JobJson(const v1::Job& job);  // all of `get JOB`
Json JobListJson(const v1::ListJobsResponse& jobs);
Json CheckpointJson(const v1::CheckpointInfo& checkpoint);
Json NodeJson(const v1::Node& node);
Json NodeListJson(const v1::ListNodesResponse& nodes);
Json AmountsJson(const v1::Amounts& amounts);
Json CeilingJson(const v1::Ceiling& ceiling);

}  // namespace muster
