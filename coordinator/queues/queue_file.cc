#include "coordinator/queues/queue_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.h"
#include "common/job_spec/yaml_reader.h"
#include "common/job_spec/yaml_text.h"

namespace muster {
namespace {

constexpr int kMaxKeys = 65536;
constexpr std::size_t kMaxClasses = 256;
// So that the sum over all queues is an int.
constexpr int kMaxAmount = 250'000;
constexpr std::int64_t kMaxSpanSeconds = 3650LL * 86400;

void ReadAmounts(MapReader& queue, const std::string& key, Amounts* out) {
  auto map = queue.Map(key);
  if (!map) return;
  map->Integer("gpus", {0, kMaxAmount}, &out->gpus);
  map->Integer("slots", {0, kMaxAmount}, &out->slots);
  map->Finish();
}

void ReadSpan(MapReader& map, const std::string& key, std::int64_t* out) {
  map.Seconds(key, out);
  if (*out > kMaxSpanSeconds) map.Error(key, "must be 3650d at most");
}

// Reads queues into a tree, each before its children. Aliases may make a small text a large or
// endless tree, so it stops at the first error.
class QueuesReader {
 public:
  QueuesReader(SpecErrors& errors, QueueTree& tree) : errors_(errors), tree_(tree) {}

  // The map of queues that `owner` has at `queues`.
  void Read(MapReader& owner, int parent, int depth) {
    auto map = owner.Map("queues");
    if (!map) return;
    if (depth > kMaxQueueDepth)
      return owner.Error("queues", "queues may be " + std::to_string(kMaxQueueDepth) + " deep");
    const std::vector<std::string> names = map->Names();
    if (names.size() + tree_.queues.size() > std::size_t{kMaxQueues})
      return owner.Error("queues", "there may be " + std::to_string(kMaxQueues) + " queues");
    for (const std::string& name : names) {
      if (!errors_.ok()) return;
      ReadQueue(*map, name, parent, depth);
    }
  }

 private:
  void ReadQueue(MapReader& queues, const std::string& name, int parent, int depth) {
    if (!FollowsNameRule(name))
      return queues.Error(name, "a queue's name has 1 to 63 letters, digits, '-', '_' and '.'");
    if (!names_.insert(name).second)
      return queues.Error(name,
                          "there is a queue of this name in another place; names are unique "
                          "in the whole tree, since jobs name a queue by it alone");
    QueueSpec queue{.name = name, .parent = parent};
    if (parent >= 0) {
      const QueueSpec& above = tree_.queues[static_cast<std::size_t>(parent)];
      queue.default_priority = above.default_priority;
      queue.time_limit_seconds = above.time_limit_seconds;
      queue.per_user = above.per_user;
    }
    const std::size_t index = tree_.queues.size();
    auto node = queues.Node(name);
    if (node->IsNull()) {  // "default:" alone
      tree_.queues.push_back(std::move(queue));
      return;
    }
    auto map = queues.Map(name);
    if (!map) return;
    ReadAmounts(*map, "guarantee", &queue.guarantee);
    ReadAmounts(*map, "ceiling", &queue.ceiling);
    map->Number("weight",
                {"from 0.001 to 1000000",
                 [](double weight) { return weight >= 0.001 && weight <= 1'000'000; }},
                &queue.weight);
    map->Integer("priority", {0, 100}, &queue.default_priority);
    ReadSpan(*map, "time_limit", &queue.time_limit_seconds);
    ReadUserLimits(*map, queue);
    queue.leaf = !map->Has("queues");
    tree_.queues.push_back(std::move(queue));
    Read(*map, static_cast<int>(index), depth + 1);
    if (!errors_.ok()) return;
    map->Finish();
    if (!tree_.queues[index].leaf && tree_.queues.size() == index + 1)
      map->Error("queues", "is empty; leave it out for a queue that takes jobs itself");
    CheckAmounts(*map, index);
  }

  // An empty map lifts those of its parent.
  void ReadUserLimits(MapReader& map, QueueSpec& queue) {
    auto limits = map.Map("per_user");
    if (!limits) return;
    queue.per_user = {};
    Amounts& most = queue.per_user.ceiling;
    limits->Integer("gpus", {0, kMaxAmount}, &most.gpus);
    limits->Integer("slots", {0, kMaxAmount}, &most.slots);
    limits->Integer("running", {1, kMaxAmount}, &most.jobs);
    limits->Integer("queued", {1, kMaxAmount}, &queue.per_user.queued);
    CheckReached(*limits, queue, "gpus", &Amounts::gpus, " GPUs");
    CheckReached(*limits, queue, "slots", &Amounts::slots, " slots");
    limits->Finish();
  }

  void CheckReached(MapReader& limits, const QueueSpec& queue, const char* key, int Amounts::*of,
                    const char* unit) {
    const int most = queue.per_user.ceiling.*of;
    if (most == kNoCeiling) return;
    for (const QueueSpec* at = &queue; at != nullptr; at = ParentOf(*at))
      if (most > at->ceiling.*of)
        return limits.Error(key, "is " + std::to_string(most) + unit + ", more than the " +
                                     std::to_string(at->ceiling.*of) + " of " + at->name +
                                     ", so it would never be reached");
  }

  const QueueSpec* ParentOf(const QueueSpec& queue) const {
    return queue.parent < 0 ? nullptr : &tree_.queues[static_cast<std::size_t>(queue.parent)];
  }

  // Its children are complete. Of GPUs and of slots:
  void CheckAmounts(MapReader& map, std::size_t index) {
    CheckAmount(map, index, &Amounts::gpus, " GPUs");
    CheckAmount(map, index, &Amounts::slots, " slots");
  }

  void CheckAmount(MapReader& map, std::size_t index, int Amounts::*of, const char* unit) {
    QueueSpec& queue = tree_.queues[index];
    int promised = 0;
    for (std::size_t i = index + 1; i < tree_.queues.size(); ++i)
      if (tree_.queues[i].parent == static_cast<int>(index))
        promised += tree_.queues[i].guarantee.*of;
    int& guarantee = queue.guarantee.*of;
    if (guarantee > 0 && promised > guarantee)
      return map.Error("guarantee", "its queues have guarantees of " + std::to_string(promised) +
                                        unit + ", more than its own " + std::to_string(guarantee));
    guarantee = std::max(guarantee, promised);
    const int ceiling = queue.ceiling.*of;
    if (guarantee > ceiling)
      map.Error("ceiling", "is " + std::to_string(ceiling) + unit + ", less than the guarantee" +
                               (promised == guarantee ? " of its queues, " : ", ") +
                               std::to_string(guarantee));
    for (int above = queue.parent; above >= 0;
         above = tree_.queues[static_cast<std::size_t>(above)].parent) {
      const QueueSpec& ancestor = tree_.queues[static_cast<std::size_t>(above)];
      if (ceiling != kNoCeiling && ceiling > ancestor.ceiling.*of)
        map.Error("ceiling", "is " + std::to_string(ceiling) + unit + ", more than the " +
                                 std::to_string(ancestor.ceiling.*of) + " of " + ancestor.name +
                                 ", so it would never be reached");
    }
  }

  SpecErrors& errors_;
  QueueTree& tree_;
  std::set<std::string> names_;
};

void ReadClasses(MapReader& file, QueueTree& tree) {
  auto map = file.Map("classes");
  if (!map) return;
  const std::vector<std::string> names = map->Names();
  if (names.size() > kMaxClasses)
    return file.Error("classes", "there may be " + std::to_string(kMaxClasses) + " classes");
  for (const std::string& name : names) {
    int value = 0;
    map->Integer(name, {-kMaxClassValue, kMaxClassValue}, &value);
    if (!FollowsNameRule(name))
      return map->Error(name, "a class's name has 1 to 63 letters, digits, '-', '_' and '.'");
    if (name != kNormalClass)
      tree.classes.push_back({name, value});
    else if (value != 0)
      map->Error(name, "is 0: the class of jobs that name none; the others are above or below it");
  }
}

void ReadFile(SpecErrors& errors, const YAML::Node& root, QueueTree& tree) {
  MapReader file(&errors, root, "");
  if (!errors.ok()) return;
  ReadSpan(file, "half_life", &tree.half_life_seconds);
  ReadClasses(file, tree);
  if (auto preemption = file.Map("preemption")) {
    ReadSpan(*preemption, "after", &tree.preempt_after_seconds);
    ReadSpan(*preemption, "every", &tree.preempt_every_seconds);
    preemption->Finish();
  }
  file.Require("queues", "name at least the queue that takes jobs which name none, default: {}");
  if (errors.ok()) QueuesReader(errors, tree).Read(file, -1, 1);
  file.Finish();
  if (!errors.ok()) return;
  const int found = tree.Find(kDefaultQueue);
  if (found < 0)
    file.Error("queues",
               "there is no queue 'default', which takes the jobs that name no queue; "
               "add default: {}");
  else if (!tree.queues[static_cast<std::size_t>(found)].leaf)
    file.Error("queues",
               "'default' takes the jobs that name no queue, so it may not have queues "
               "of its own; give them to a queue of another name");
}

}  // namespace

Result<QueueTree> ParseQueueFile(std::string_view yaml, const std::string& name) {
  try {
    MUSTER_ASSIGN_OR_RETURN(const YAML::Node document,
                            LoadYaml(yaml, name, {"queue file", kMaxKeys}));
    if (!document.IsMap())
      return InvalidArgument(name + ":1: expected one map of keys such as queues: {default: {}}");
    SpecErrors errors(name);
    QueueTree tree = DefaultTree();
    tree.queues.clear();
    ReadFile(errors, document, tree);
    MUSTER_RETURN_IF_ERROR(errors.status());
    return tree;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(name + ":" + std::to_string(line) + ": is no valid YAML: " + error.msg);
  }
}

Result<QueueTree> ParseStoredQueues(std::uint64_t version, const std::string& yaml) {
  if (version == 0) return DefaultTree();
  auto tree = ParseQueueFile(yaml, "queues");
  if (!tree.ok())
    return FailedPrecondition("version " + std::to_string(version) +
                              " of the queues, which is in force, is not accepted by this version "
                              "of Muster (" +
                              tree.status().message() +
                              "); start the version of Muster that applied it, and apply a file "
                              "there that this one accepts");
  tree->version = version;
  return tree;
}

}  // namespace muster
