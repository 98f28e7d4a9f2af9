// Archive: what memory keeps of the jobs that are over and in the store's archive.
//
// It is what decisions need: that the id is taken, which prefix is unique, which key belongs to
// which job, and when the job is deleted. Everything else of it is read from the store. A job costs
// less than 200 bytes here.
//
// Owned by State; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "coordinator/domain/archived_job.h"

namespace muster::control {

class Archive {
 public:
  struct Entry {
    std::uint64_t key_print = 0;
    std::uint64_t spec_print = 0;
    TimePoint delete_at = TimePoint::max();
    JobState state = JobState::kSucceeded;
  };
  using Jobs = std::map<JobId, Entry>;

  // The job must not be there yet.
  void Add(const ArchivedJob& job, TimePoint delete_at);
  // The earliest that is due; nothing: none is.
  std::optional<JobId> PopDue(TimePoint now);
  std::optional<TimePoint> Next() const;

  const Jobs& jobs() const { return jobs_; }
  bool contains(const JobId& id) const { return jobs_.contains(id); }
  // nullptr: no archived job has the key.
  const Jobs::value_type* FindKey(std::string_view key) const;

 private:
  Jobs jobs_;
  std::unordered_map<std::uint64_t, const Jobs::value_type*> keys_;  // by the key's print
  std::deque<const Jobs::value_type*> by_deletion_;                  // without those that stay
};

}  // namespace muster::control
