#include "coordinator/scheduler/queue_loads.h"

#include <algorithm>

namespace muster {
namespace {

// The most of two spans of time.
Amounts Most(const Amounts& a, const Amounts& b) {
  return {.gpus = std::max(a.gpus, b.gpus),
          .slots = std::max(a.slots, b.slots),
          .jobs = std::max(a.jobs, b.jobs)};
}

int MostJobs(const Amounts& limit) { return limit.jobs == 0 ? kNoCeiling : limit.jobs; }

bool IsWithin(const Amounts& used, const Amounts& more, const Amounts& limit) {
  return (more.gpus == 0 || limit.gpus - more.gpus >= used.gpus) &&
         (more.slots == 0 || limit.slots - more.slots >= used.slots) &&
         (more.jobs == 0 || MostJobs(limit) - more.jobs >= used.jobs);
}

// For a gang of GPUs those alone count.
Amounts CountedOf(const Amounts& amounts) {
  return {.gpus = amounts.gpus, .slots = amounts.gpus > 0 ? 0 : amounts.slots};
}

// How much of `more` is above the limit.
double PartOver(int used, int more, int limit) {
  if (more <= 0 || limit - more >= used) return 0;
  return static_cast<double>(used - (limit - more)) / more;
}

}  // namespace

double CostOf(const Amounts& amounts) {
  constexpr double kSlotCost = 0.1;
  return amounts.gpus > 0 ? amounts.gpus : kSlotCost * amounts.slots;
}

QueueLoads::QueueLoads(const QueueTree& tree, const std::vector<double>& usage, TimePoint now)
    : tree_(tree), now_(now), loads_(tree.queues.size(), {.used = {now, Amounts{}}}) {
  for (std::size_t i = 0; i < std::min(usage.size(), loads_.size()); ++i) {
    for (int queue = static_cast<int>(i); queue >= 0; queue = Spec(queue).parent)
      loads_[At(queue)].usage += usage[i];
  }
}

bool QueueLoads::HasCeiling(int queue) const {
  const Amounts& ceiling = Spec(queue).ceiling;
  return ceiling.gpus != kNoCeiling || ceiling.slots != kNoCeiling || ceiling.jobs != 0;
}

// Sorted, so that each step of a queue is made once.
void QueueLoads::HoldRunning(const std::vector<RunningLoad>& gangs) {
  std::vector<std::vector<std::pair<TimePoint, Amounts>>> ends(loads_.size());
  for (const RunningLoad& gang : gangs)
    for (int queue = gang.queue; queue >= 0; queue = Spec(queue).parent)
      ends[At(queue)].emplace_back(gang.ends, gang.amounts);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    Amounts used;
    for (const auto& [end, amounts] : ends[i]) used += amounts;
    loads_[i].used = {now_, used};
    if (!HasCeiling(static_cast<int>(i))) continue;
    std::ranges::sort(ends[i], {}, [](const auto& end) { return end.first; });
    for (const auto& [end, amounts] : ends[i])
      if (end != kNever) loads_[i].used.Append(end, used -= amounts);
  }
}

void QueueLoads::Hold(int queue, const Amounts& amounts, TimePoint from, TimePoint to) {
  for (; queue >= 0; queue = Spec(queue).parent) {
    const bool later_counts = HasCeiling(queue);
    if (!later_counts && from > now_) continue;
    loads_[At(queue)].used.Apply(from, later_counts ? to : kNever,
                                 [&](Amounts& used) { used += amounts; });
  }
}

void QueueLoads::Release(int queue, const Amounts& amounts, TimePoint from, TimePoint to) {
  Hold(queue, -amounts, from, to);
}

void QueueLoads::Charge(int queue, const Amounts& amounts, Duration length) {
  const double usage = CostOf(amounts) * ToSeconds(std::min<Duration>(length, kChargedAhead));
  for (; queue >= 0; queue = Spec(queue).parent) loads_[At(queue)].usage += usage;
}

bool QueueLoads::IsEntitled(int queue, const Amounts& more) const {
  const Amounts counted = CountedOf(more);
  for (; queue >= 0; queue = Spec(queue).parent)
    if (IsWithin(Used(queue), counted, Spec(queue).guarantee)) return true;
  return false;
}

int QueueLoads::OverCeiling(int queue, const Amounts& more, TimePoint from, TimePoint to) const {
  for (; queue >= 0; queue = Spec(queue).parent) {
    if (!HasCeiling(queue)) continue;
    if (!IsWithin(Peak(queue, from, to), more, Spec(queue).ceiling)) return queue;
  }
  return -1;
}

Amounts QueueLoads::Peak(int queue, TimePoint from, TimePoint to) const {
  return loads_[At(queue)].used.Over(from, to, Most);
}

TimePoint QueueLoads::OverFrom(int queue, const Amounts& more) const {
  TimePoint first = kNever;
  for (; queue >= 0; queue = Spec(queue).parent) {
    const StepFunction<Amounts>& used = loads_[At(queue)].used;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (!IsWithin(used.at(i).value, more, Spec(queue).ceiling))
        first = std::min(first, used.at(i).from);
  }
  return first;
}

void QueueLoads::Expect(int queue, const Amounts& amounts) {
  for (; queue >= 0; queue = Spec(queue).parent) loads_[At(queue)].expected += amounts;
}

bool QueueLoads::IsAbove(int queue, int other) const {
  while (other >= 0 && other != queue) other = Spec(other).parent;
  return other == queue;
}

Amounts QueueLoads::Expected(int queue) const {
  Amounts amounts = Used(queue);
  amounts += loads_[At(queue)].expected;
  return amounts;
}

bool QueueLoads::MayClaim(int queue, int from, const Amounts& more) const {
  for (; queue >= 0 && !IsAbove(queue, from); queue = Spec(queue).parent)
    if (IsWithin(Expected(queue), CountedOf(more), Spec(queue).guarantee)) return true;
  return false;
}

bool QueueLoads::MayGive(int from, int queue, const Amounts& less) const {
  const Amounts counted = CountedOf(less);
  for (; from >= 0 && !IsAbove(from, queue); from = Spec(from).parent) {
    const Amounts left = Expected(from);
    const Amounts& guarantee = Spec(from).guarantee;
    if (counted.gpus > 0 && left.gpus - counted.gpus < guarantee.gpus) return false;
    if (counted.slots > 0 && left.slots - counted.slots < guarantee.slots) return false;
  }
  return true;
}

std::vector<std::vector<TimeSpan>> QueueLoads::Starts(int queue, const Amounts& more,
                                                      Duration length) const {
  std::vector<std::vector<TimeSpan>> starts;
  for (; queue >= 0; queue = Spec(queue).parent) {
    if (!HasCeiling(queue)) continue;
    std::vector<TimeSpan>& spans = starts.emplace_back();
    loads_[At(queue)].used.EachStart(
        length, Most,
        [&](const Amounts& used) { return IsWithin(used, more, Spec(queue).ceiling); },
        [&](const TimeSpan& span) { spans.push_back(span); });
  }
  return starts;
}

CeilingExcess::CeilingExcess(const QueueLoads& loads, int queue, const Amounts& more,
                             TimePoint from, TimePoint to)
    : loads_(&loads), more_(more), from_(from), to_(to) {
  for (; queue >= 0; queue = loads.Spec(queue).parent) {
    if (!loads.HasCeiling(queue)) continue;
    const StepFunction<Amounts>& used = loads.loads_[QueueLoads::At(queue)].used;
    std::vector<Step>& steps = levels_.emplace_back(Level{.queue = queue}).steps;
    steps.reserve(used.size());
    for (std::size_t i = 0; i < used.size(); ++i) {
      const auto& step = used.at(i);
      if (step.from >= to && !steps.empty()) break;
      if (step.from <= from) steps.clear();  // none before it counts
      const Amounts before = steps.empty() ? step.value : Most(steps.back().before, step.value);
      steps.push_back({.from = step.from, .before = before, .after = step.value});
    }
    for (std::size_t i = steps.size() - 1; i > 0; --i)
      steps[i - 1].after = Most(steps[i - 1].after, steps[i].after);
    value_ += Over(levels_.back(), steps.back().before);
  }
}

double CeilingExcess::Over(const Level& level, const Amounts& peak) const {
  const Amounts& ceiling = loads_->Spec(level.queue).ceiling;
  const double over = PartOver(peak.gpus, more_.gpus, ceiling.gpus) +
                      PartOver(peak.slots, more_.slots, ceiling.slots);
  return ceiling.jobs == 0 ? over : over + PartOver(peak.jobs, more_.jobs, ceiling.jobs);
}

double CeilingExcess::Without(int queue, const Amounts& less, TimePoint until) const {
  double excess = 0;
  for (const Level& level : levels_) {
    const std::vector<Step>& steps = level.steps;
    // Those in which it would have less, as far as they go.
    const auto count = static_cast<std::size_t>(
        std::ranges::lower_bound(steps, until, {}, &Step::from) - steps.begin());
    if (count == 0 || until <= from_ || !loads_->IsAbove(level.queue, queue)) {
      excess += Over(level, steps.back().before);
      continue;
    }
    Amounts peak = steps[count - 1].before;
    peak -= less;
    const TimePoint next = count < steps.size() ? steps[count].from : to_;
    const std::size_t behind = until < next ? count - 1 : count;
    if (behind < steps.size()) peak = Most(peak, steps[behind].after);
    excess += Over(level, peak);
  }
  return excess;
}

double QueueLoads::Share(int queue) const { return loads_[At(queue)].usage / Spec(queue).weight; }

}  // namespace muster
