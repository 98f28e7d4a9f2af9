// PageDocument: the content of one kind of page, updated from the controller.
//
// Owned by PageFeeds; the loop's thread, but pure: the controller's views, the histories and the
// time are arguments.
#pragma once

#include "coordinator/control/controller.h"
#include "coordinator/history/histories.h"
#include "coordinator/page/revised_parts.h"

namespace muster {

class PageDocument {
 public:
  virtual ~PageDocument() = default;
  virtual void Update(const Controller& controller, const Histories& histories, const Now& now) = 0;
  const RevisedParts& parts() const { return parts_; }

 protected:
  RevisedParts parts_;
};

}  // namespace muster
