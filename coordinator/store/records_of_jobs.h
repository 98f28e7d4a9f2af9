// RecordsOfJobs: an archive as a map, for stores that keep it in memory.
//
// A value; one thread.
#pragma once

#include <map>
#include <vector>

#include "coordinator/store/store.h"

namespace muster {

using RecordsOfJobs = std::map<JobId, ArchivedRecords>;

// By step, then by generation.
void OrderCheckpoints(std::vector<CheckpointRecord>* checkpoints);

std::vector<ArchivedRecords> Select(const RecordsOfJobs& archive, const ArchiveQuery& query);

}  // namespace muster
