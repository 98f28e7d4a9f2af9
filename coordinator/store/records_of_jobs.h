// RecordsOfJobs: an archive as a map, for stores that keep it in memory.
//
// A value; one thread.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/store/store.h"

namespace muster {

using RecordsOfJobs = std::map<JobId, ArchivedRecords>;

// By step, then by generation.
void OrderCheckpoints(std::vector<CheckpointRecord>* checkpoints);

// Moves a job's records there.
void ArchiveRecords(const JobId& id, std::map<JobId, JobRecord>* jobs,
                    std::map<std::pair<JobId, Generation>, AttemptRecord>* attempts,
                    std::map<std::pair<JobId, std::string>, CheckpointRecord>* checkpoints,
                    RecordsOfJobs* archive);

// Replace a record; nothing changes where there is none.
void PutArchived(JobRecord job, RecordsOfJobs* archive);
void PutArchived(CheckpointRecord checkpoint, RecordsOfJobs* archive);

std::vector<ArchivedRecords> Select(const RecordsOfJobs& archive, const ArchiveQuery& query);

}  // namespace muster
