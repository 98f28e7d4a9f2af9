// JobPage: a page of ListJobs while it is gathered, from memory and then from the archive.
//
// Owned by the call under way; the loop's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/runtime/event_loop.h"
#include "coordinator/control/views.h"
#include "coordinator/store/store.h"
#include "muster/v1/client_api.pb.h"

namespace muster {

class JobPage : public std::enable_shared_from_this<JobPage> {
 public:
  // Jobs that the filter does not take are left out.
  JobPage(v1::ListJobsRequest request, JobFilter filter);

  // kInvalidArgument: the request has a limit, a filter or a token that is none.
  Status Begin();
  // From the newest submission down, until IsFull.
  void Add(const JobView& view, TimePoint now);
  // One job more than fits, which shows that another page follows.
  bool IsFull() const { return jobs_.size() > static_cast<std::size_t>(limit_); }
  // By pages of the store, until the page is full or begins before the store's rest, or is not
  // wanted any more. `done` follows on the loop.
  void AddArchived(Store& store, EventLoop& loop, std::function<bool()> wanted,
                   std::function<void(const Status&)> done);
  void Fill(v1::ListJobsResponse* response);

 private:
  bool Takes(const JobRecord& job) const;
  std::uint64_t Last() const;

  const v1::ListJobsRequest request_;
  const JobFilter filter_;
  const std::int64_t oldest_end_unix_ms_;
  int limit_ = 0;
  std::uint64_t before_ = std::numeric_limits<std::int64_t>::max();
  std::uint64_t archive_before_ = before_;
  std::map<std::uint64_t, v1::Job> jobs_;  // by submit_order
};

}  // namespace muster
