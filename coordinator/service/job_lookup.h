// JobLookup: finds the job that a caller names, in memory or, behind that, in the store's archive.
//
// By id, unique prefix of one, or name: what Controller::FindJob finds comes first, then a prefix
// of an archived job's id, then the newest archived job of that name.
//
// Owned by the server; the loop's thread. The store outlives it.
#pragma once

#include <functional>
#include <string>

#include "common/base/result.h"
#include "common/runtime/event_loop.h"
#include "coordinator/control/controller.h"
#include "coordinator/store/store.h"

namespace muster {

class JobLookup {
 public:
  // The view is good until the function returns. Fails as Controller::FindJob, and where the
  // archive cannot be read.
  using Found = std::function<void(const Result<JobView>&)>;

  JobLookup(EventLoop& loop, const Controller& controller, Store& store)
      : loop_(loop), controller_(controller), store_(store) {}

  // Calls `found` once: at once with a job in memory, else on the loop when the store has answered.
  // Jobs that `filter` does not take are not there.
  void Find(const std::string& job, JobFilter filter, Found found) const;

 private:
  EventLoop& loop_;
  const Controller& controller_;
  Store& store_;
};

}  // namespace muster
