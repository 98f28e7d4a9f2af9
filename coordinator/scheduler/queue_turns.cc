#include "coordinator/scheduler/queue_turns.h"

namespace muster {

QueueTurns::QueueTurns(const QueueTree& tree, const QueueLoads& loads)
    : tree_(tree),
      loads_(loads),
      waiting_(tree.queues.size() + 1),
      share_(tree.queues.size() + 1) {}

void QueueTurns::Enter(int queue) {
  share_[At(queue)] = loads_.Share(queue);
  Waiting(ParentOf(queue)).emplace(share_[At(queue)], queue);
}

bool QueueTurns::Leave(int queue) {
  return Waiting(ParentOf(queue)).erase({share_[At(queue)], queue}) > 0;
}

void QueueTurns::Add(int queue) {
  bool first = true;  // of its parent's children
  for (; queue != kTop && first; queue = ParentOf(queue)) {
    first = Waiting(ParentOf(queue)).empty();
    Enter(queue);
  }
}

void QueueTurns::Remove(int queue) {
  bool last = true;
  for (; queue != kTop && last; queue = ParentOf(queue)) {
    Leave(queue);
    last = Waiting(ParentOf(queue)).empty();
  }
}

int QueueTurns::Next() const {
  int queue = kTop;
  do {
    queue = Waiting(queue).begin()->second;
  } while (!Waiting(queue).empty());
  return queue;
}

void QueueTurns::Update(int queue) {
  for (; queue != kTop; queue = ParentOf(queue))
    if (Leave(queue)) Enter(queue);
}

}  // namespace muster
