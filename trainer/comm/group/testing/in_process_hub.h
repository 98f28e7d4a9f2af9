// InProcessHub: all that the ranks of an InProcessGroup have in common, and the links between them.
//
// One lock and one condition for everything, since tests need no more. Any thread.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "trainer/comm/transport.h"
#include "trainer/comm/transport/ring_link.h"
#include "trainer/comm/transport/shared/shared_link.h"

namespace muster {

class InProcessHub : public std::enable_shared_from_this<InProcessHub> {
 public:
  // One group of one generation.
  struct Circle;

  explicit InProcessHub(int size);
  ~InProcessHub();

  int size() const { return static_cast<int>(epochs_.size()); }

  // Waits for all ranks of the group, this one of the world among them.
  Result<std::shared_ptr<Circle>> Join(int world_rank, const Group& group, Deadline deadline);
  // Ends that rank's Joins, those to come included until it is taken back.
  void SetCancelled(int world_rank, bool cancelled);

  std::unique_ptr<RingLink> MakeRingLink(std::shared_ptr<Circle> circle, int rank);
  std::unique_ptr<SharedLink> MakeSharedLink(std::shared_ptr<Circle> circle, int rank);

  // See InProcessGroup::Kill.
  void Kill(int world_rank);

 private:
  class Ring;
  class Shared;

  // A rank is gone: its edges go down and its peers hear of it. The caller holds the lock.
  void Cut(Circle& circle, int rank, const Status& why);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<Generation, std::string>, std::shared_ptr<Circle>> circles_;
  // Raised by Kill where that rank is in no circle: a Join of an older epoch fails.
  std::vector<std::uint64_t> epochs_;
  std::vector<bool> cancelled_;
  // The circles that each rank of the world is in, and as what rank.
  std::map<int, std::vector<std::pair<std::shared_ptr<Circle>, int>>> places_;
};

}  // namespace muster
