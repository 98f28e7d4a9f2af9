#include "coordinator/queues/queue_tree.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "common/base/strings.h"
#include "common/job_spec/job_times.h"

namespace muster {
namespace {

std::string Counted(int count, const char* one, const char* many) {
  return std::to_string(count) + (count == 1 ? one : many);
}

std::string NumberText(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void AddChange(const std::string& what, const std::string& before, const std::string& after,
               std::vector<std::string>& out) {
  if (before != after) out.push_back(what + " " + before + " -> " + after);
}

// "guarantee 0 -> 1 GPU"; kNoCeiling is none and has no unit.
void AddChange(const std::string& what, int before, int after, const char* one, const char* many,
               std::vector<std::string>& out) {
  if (after == kNoCeiling) return AddChange(what, Counted(before, one, many), "none", out);
  AddChange(what, before == kNoCeiling ? "none" : std::to_string(before), Counted(after, one, many),
            out);
}

void AddChange(const std::string& what, const Amounts& before, const Amounts& after,
               std::vector<std::string>& out) {
  if (before.gpus != after.gpus) AddChange(what, before.gpus, after.gpus, " GPU", " GPUs", out);
  if (before.slots != after.slots)
    AddChange(what, before.slots, after.slots, " slot", " slots", out);
}

void AddChange(const std::string& what, const UserLimits& before, const UserLimits& after,
               std::vector<std::string>& out) {
  AddChange(what, before.ceiling, after.ceiling, out);
  const auto or_none = [](int count) { return count == 0 ? kNoCeiling : count; };
  const auto add = [&](int was, int is, const char* one, const char* many) {
    if (was != is) AddChange(what, or_none(was), or_none(is), one, many, out);
  };
  add(before.ceiling.jobs, after.ceiling.jobs, " running job", " running jobs");
  add(before.queued, after.queued, " queued job", " queued jobs");
}

std::string ParentName(const QueueTree& tree, const QueueSpec& queue) {
  return queue.parent < 0 ? "the top" : tree.queues[static_cast<std::size_t>(queue.parent)].name;
}

// Its figures beside those of `before`, without its place.
std::vector<std::string> FigureChanges(const QueueSpec& before, const QueueSpec& after) {
  std::vector<std::string> out;
  AddChange("guarantee", before.guarantee, after.guarantee, out);
  AddChange("ceiling", before.ceiling, after.ceiling, out);
  AddChange("weight", NumberText(before.weight), NumberText(after.weight), out);
  AddChange("priority", std::to_string(before.default_priority),
            std::to_string(after.default_priority), out);
  AddChange("time limit", LimitText(before.time_limit_seconds), LimitText(after.time_limit_seconds),
            out);
  AddChange("per user", before.per_user, after.per_user, out);
  return out;
}

// "; did you mean 'vision'?", else "; KINDS: a, b, c".
std::string Suggestion(std::string_view name, std::vector<std::string> known,
                       const std::string& kinds) {
  if (const auto nearest = NearestWord(std::string(name), known))
    return "; did you mean '" + *nearest + "'?";
  constexpr std::size_t kShown = 10;
  const bool more = known.size() > kShown;
  if (more) known.resize(kShown);
  return "; " + kinds + ": " + Join(known) + (more ? " and others" : "");
}

std::string Quoted(std::string_view name) {
  constexpr std::size_t kShown = 80;
  return "'" + std::string(name.substr(0, kShown)) + (name.size() > kShown ? "...'" : "'");
}

template <typename Named>
std::map<std::string_view, const Named*> ByName(const std::vector<Named>& all) {
  std::map<std::string_view, const Named*> out;
  for (const Named& each : all) out[each.name] = &each;
  return out;
}

void AddQueueChanges(const QueueTree& before, const QueueTree& after,
                     std::vector<std::string>& out) {
  const auto old = ByName(before.queues);
  const auto now = ByName(after.queues);
  for (const QueueSpec& queue : after.queues) {
    const auto it = old.find(queue.name);
    const QueueSpec* was = it == old.end() ? nullptr : it->second;
    std::vector<std::string> changes = FigureChanges(was ? *was : QueueSpec(), queue);
    if (!was) {
      changes.insert(changes.begin(),
                     queue.parent < 0 ? "new" : "new, in " + ParentName(after, queue));
    } else {
      if (was->leaf != queue.leaf)
        changes.push_back(queue.leaf ? "takes jobs now" : "has queues now, and takes no jobs");
      AddChange("moved:", ParentName(before, *was), ParentName(after, queue), changes);
    }
    if (!changes.empty()) out.push_back(queue.name + ": " + Join(changes));
  }
  for (const QueueSpec& queue : before.queues)
    if (!now.contains(queue.name)) out.push_back(queue.name + ": removed");
}

void AddClassChanges(const QueueTree& before, const QueueTree& after,
                     std::vector<std::string>& out) {
  for (const PriorityClass& each : after.classes) {
    const PriorityClass* was = before.FindClass(each.name);
    if (was && was->value == each.value) continue;
    out.push_back("class " + each.name + ": " +
                  (was ? std::to_string(was->value) + " -> " : std::string("new, ")) +
                  std::to_string(each.value));
  }
  for (const PriorityClass& each : before.classes)
    if (!after.FindClass(each.name)) out.push_back("class " + each.name + ": removed");
}

}  // namespace

Amounts& Amounts::operator+=(const Amounts& other) {
  gpus += other.gpus;
  slots += other.slots;
  jobs += other.jobs;
  return *this;
}

Amounts& Amounts::operator-=(const Amounts& other) {
  gpus -= other.gpus;
  slots -= other.slots;
  jobs -= other.jobs;
  return *this;
}

int QueueTree::Find(std::string_view name) const {
  const auto it = std::find_if(queues.begin(), queues.end(),
                               [&](const QueueSpec& queue) { return queue.name == name; });
  return it == queues.end() ? -1 : static_cast<int>(std::distance(queues.begin(), it));
}

const PriorityClass* QueueTree::FindClass(std::string_view name) const {
  const auto it = std::find_if(classes.begin(), classes.end(),
                               [&](const PriorityClass& each) { return each.name == name; });
  return it == classes.end() ? nullptr : &*it;
}

bool QueueTree::MayReclaim() const {
  return classes.size() > 1 || std::ranges::any_of(queues, [](const QueueSpec& queue) {
           return queue.guarantee != Amounts();
         });
}

QueueTree DefaultTree() {
  QueueTree tree;
  tree.queues.push_back({.name = std::string(kDefaultQueue)});
  tree.classes.push_back({.name = std::string(kNormalClass)});
  return tree;
}

std::string UnknownQueue(const QueueTree& tree, std::string_view name) {
  std::vector<std::string> leaves;
  for (const QueueSpec& queue : tree.queues)
    if (queue.leaf) leaves.push_back(queue.name);
  return "unknown queue " + Quoted(name) + Suggestion(name, std::move(leaves), "these take jobs");
}

std::string UnknownClass(const QueueTree& tree, std::string_view name) {
  std::vector<std::string> names;
  for (const PriorityClass& each : tree.classes) names.push_back(each.name);
  return "unknown class " + Quoted(name) + Suggestion(name, std::move(names), "there are");
}

std::string AmountsText(const Amounts& amounts) {
  const std::string gpus = Counted(amounts.gpus, " GPU", " GPUs");
  const std::string slots = Counted(amounts.slots, " slot", " slots");
  if (amounts.gpus != 0 && amounts.slots != 0) return gpus + " and " + slots;
  if (amounts.gpus != 0) return gpus;
  return amounts.slots != 0 ? slots : "0";
}

std::vector<std::string> QueueChanges(const QueueTree& before, const QueueTree& after) {
  std::vector<std::string> out;
  AddQueueChanges(before, after, out);
  AddClassChanges(before, after, out);
  const auto add_span = [&](const char* what, std::int64_t was, std::int64_t is) {
    AddChange(what, SpanText(was), SpanText(is), out);
  };
  add_span("half_life", before.half_life_seconds, after.half_life_seconds);
  add_span("preemption after", before.preempt_after_seconds, after.preempt_after_seconds);
  add_span("preemption every", before.preempt_every_seconds, after.preempt_every_seconds);
  return out;
}

std::vector<std::string> QueueWarnings(const QueueTree& tree, const Amounts& cluster) {
  Amounts sum;
  for (const QueueSpec& queue : tree.queues)
    if (queue.parent < 0) sum += queue.guarantee;
  std::vector<std::string> out;
  const auto compare = [&](int promised, int there, const char* one, const char* many) {
    if (promised > there)
      out.push_back("the guarantees come to " + Counted(promised, one, many) +
                    ", and the nodes have " + std::to_string(there) +
                    " today: not all of them can be kept at the same time");
  };
  compare(sum.gpus, cluster.gpus, " GPU", " GPUs");
  compare(sum.slots, cluster.slots, " slot", " slots");
  return out;
}

}  // namespace muster
