// An archived job as the controller sees it, and as the store hands it out whole.
//
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/base/ids.h"
#include "coordinator/domain/records.h"

namespace muster {

// The columns of an archived job that a start reads; its record is not parsed for them.
struct ArchivedJob {
  JobId id;
  JobState state = JobState::kSucceeded;  // final
  std::uint64_t submit_order = 0;
  std::int64_t ended_unix_ms = 0;
  std::uint64_t key_print = 0;   // TextPrint of its SubmitKey; 0: it has none
  std::uint64_t spec_print = 0;  // TextPrint of its job file
  friend bool operator==(const ArchivedJob&, const ArchivedJob&) = default;
};

ArchivedJob ArchivedJobOf(const JobRecord& job);

// XXH3-64, never 0. It tells keys and job files apart without keeping them; it is stored.
std::uint64_t TextPrint(std::string_view text);

// All of it.
struct ArchivedRecords {
  JobRecord job;
  std::vector<AttemptRecord> attempts;        // oldest first
  std::vector<CheckpointRecord> checkpoints;  // oldest first
  // The newest archived job that has the same output directory.
  JobId output_owner;
};

}  // namespace muster
