#include "coordinator/scheduler/queue_loads.h"

#include <algorithm>

namespace muster {
namespace {

// The most of two spans of time.
Amounts Most(const Amounts& a, const Amounts& b) {
  return {.gpus = std::max(a.gpus, b.gpus), .slots = std::max(a.slots, b.slots)};
}

bool IsWithin(const Amounts& used, const Amounts& more, const Amounts& limit) {
  return (more.gpus == 0 || limit.gpus - more.gpus >= used.gpus) &&
         (more.slots == 0 || limit.slots - more.slots >= used.slots);
}

}  // namespace

double CostOf(const Amounts& amounts) {
  constexpr double kSlotCost = 0.1;
  return amounts.gpus > 0 ? amounts.gpus : kSlotCost * amounts.slots;
}

QueueLoads::QueueLoads(const QueueTree& tree, const std::vector<double>& usage, TimePoint now)
    : tree_(tree) {
  loads_.reserve(tree.queues.size());
  for (const QueueSpec& spec : tree.queues) {
    const int depth = spec.parent < 0 ? 0 : loads_[At(spec.parent)].depth + 1;
    loads_.push_back({.used = {now, Amounts{}}, .usage = 0, .depth = depth});
  }
  for (std::size_t i = 0; i < std::min(usage.size(), loads_.size()); ++i) {
    for (int queue = static_cast<int>(i); queue >= 0; queue = Spec(queue).parent)
      loads_[At(queue)].usage += usage[i];
  }
}

bool QueueLoads::HasCeiling(int queue) const {
  const Amounts& ceiling = Spec(queue).ceiling;
  return ceiling.gpus != kNoCeiling || ceiling.slots != kNoCeiling;
}

void QueueLoads::Hold(int queue, const Amounts& amounts, TimePoint from, TimePoint to) {
  for (; queue >= 0; queue = Spec(queue).parent) {
    loads_[At(queue)].used.Apply(from, to, [&](Amounts& used) {
      used.gpus += amounts.gpus;
      used.slots += amounts.slots;
    });
  }
}

void QueueLoads::Release(int queue, const Amounts& amounts, TimePoint from, TimePoint to) {
  Hold(queue, {.gpus = -amounts.gpus, .slots = -amounts.slots}, from, to);
}

void QueueLoads::Charge(int queue, const Amounts& amounts, Duration length) {
  const double usage = CostOf(amounts) * ToSeconds(std::min<Duration>(length, kChargedAhead));
  for (; queue >= 0; queue = Spec(queue).parent) loads_[At(queue)].usage += usage;
}

bool QueueLoads::IsEntitled(int queue, const Amounts& more) const {
  const Amounts counted = {.gpus = more.gpus, .slots = more.gpus > 0 ? 0 : more.slots};
  for (; queue >= 0; queue = Spec(queue).parent)
    if (IsWithin(Used(queue), counted, Spec(queue).guarantee)) return true;
  return false;
}

int QueueLoads::OverCeiling(int queue, const Amounts& more, TimePoint from, TimePoint to) const {
  for (; queue >= 0; queue = Spec(queue).parent) {
    if (!HasCeiling(queue)) continue;
    const Amounts used = loads_[At(queue)].used.Over(from, to, Most);
    if (!IsWithin(used, more, Spec(queue).ceiling)) return queue;
  }
  return -1;
}

std::vector<std::vector<TimeSpan>> QueueLoads::Starts(int queue, const Amounts& more,
                                                      Duration length) const {
  std::vector<std::vector<TimeSpan>> starts;
  for (; queue >= 0; queue = Spec(queue).parent) {
    if (!HasCeiling(queue)) continue;
    starts.push_back(loads_[At(queue)].used.Starts(length, Most, [&](const Amounts& used) {
      return IsWithin(used, more, Spec(queue).ceiling);
    }));
  }
  return starts;
}

double QueueLoads::Share(int queue) const { return loads_[At(queue)].usage / Spec(queue).weight; }

bool QueueLoads::IsBefore(int a, int b) const {
  // Up to the siblings that have them.
  while (loads_[At(a)].depth > loads_[At(b)].depth) a = Spec(a).parent;
  while (loads_[At(b)].depth > loads_[At(a)].depth) b = Spec(b).parent;
  while (a != b && Spec(a).parent != Spec(b).parent) {
    a = Spec(a).parent;
    b = Spec(b).parent;
  }
  if (Share(a) != Share(b)) return Share(a) < Share(b);
  return a < b;
}

}  // namespace muster
