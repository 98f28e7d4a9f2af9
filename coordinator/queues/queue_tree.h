// QueueTree: the cluster's queues and priority classes, as its operator applied them.
//
// Queues form a tree, in which leaves take jobs and the others divide what they have among their
// children. docs/queues.md has the file (queue_file.h reads it) and what each figure means. Without
// a file there are one queue, `default`, and one class, `normal`.
//
// Plain values: who holds one owns it, any thread may read it. Nothing here fails.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/job_spec/queue_names.h"

namespace muster {

inline constexpr int kNoCeiling = INT_MAX;

// What a file may have.
inline constexpr int kMaxQueues = 4096;
inline constexpr int kMaxQueueDepth = 8;
inline constexpr int kMaxClassValue = 1'000'000;  // and down to -kMaxClassValue

// What a job or a queue has at a time. GPUs and slots are counted apart. Aligned, so that a sum is
// one instruction: searches for victims make millions.
struct alignas(16) Amounts {
  int gpus = 0;
  int slots = 0;
  int jobs = 0;  // with a gang, where they are counted; as a ceiling 0 is any number

  Amounts& operator+=(const Amounts& other);
  Amounts& operator-=(const Amounts& other);
  Amounts operator-() const { return {.gpus = -gpus, .slots = -slots, .jobs = -jobs}; }
  friend bool operator==(const Amounts&, const Amounts&) = default;
};

// What each user of a queue may have there at most.
struct UserLimits {
  Amounts ceiling{kNoCeiling, kNoCeiling};  // `jobs`: that run at a time
  int queued = 0;                           // jobs that wait; 0: any number

  friend bool operator==(const UserLimits&, const UserLimits&) = default;
};

struct QueueSpec {
  std::string name;  // unique in the tree; 1 to 63 letters, digits, - _ .
  int parent = -1;   // index in QueueTree::queues, before this one; -1: at the top
  bool leaf = true;  // only leaves take jobs
  // What it has at least when it has jobs for it; zero: nothing. A parent that names none
  // guarantees what its children do, summed.
  Amounts guarantee;
  // What it has at most; a job must also fit below the ceilings of all ancestors.
  Amounts ceiling{kNoCeiling, kNoCeiling};
  double weight = 1;          // its share among its siblings; above 0, finite
  int default_priority = 50;  // of jobs that name none; its parent's if it names none
  // The most a job may name, and what one gets that names none; 0: none. Its parent's if it names
  // none.
  std::int64_t time_limit_seconds = 0;
  UserLimits per_user = {};  // in this queue alone; its parent's if it names none

  friend bool operator==(const QueueSpec&, const QueueSpec&) = default;
};

struct PriorityClass {
  std::string name;
  int value = 0;  // higher goes first

  friend bool operator==(const PriorityClass&, const PriorityClass&) = default;
};

struct QueueTree {
  std::uint64_t version = 0;                   // 0: none was applied: only `default` and `normal`
  std::vector<QueueSpec> queues;               // parents before their children
  std::vector<PriorityClass> classes;          // `normal` first
  std::int64_t half_life_seconds = 7 * 86400;  // of usage, for fair shares
  // A job gives way to others at the earliest so long after it came from the queue, and after it
  // gave way before.
  std::int64_t preempt_after_seconds = 600;
  std::int64_t preempt_every_seconds = 3600;

  // Index in `queues`, -1: there is none. Compares with each: a loop over jobs keeps what it found.
  int Find(std::string_view name) const;
  const PriorityClass* FindClass(std::string_view name) const;  // nullptr: there is none
  // Whether a job may make another one give way: there are classes, or guarantees.
  bool MayReclaim() const;

  friend bool operator==(const QueueTree&, const QueueTree&) = default;
};

// What holds without a file.
QueueTree DefaultTree();

// "unknown queue 'visoin'; did you mean 'vision'?", else with the first queues that take jobs.
std::string UnknownQueue(const QueueTree& tree, std::string_view name);
// The same for a class.
std::string UnknownClass(const QueueTree& tree, std::string_view name);

// "8 GPUs", "8 GPUs and 4 slots", "0".
std::string AmountsText(const Amounts& amounts);

// What differs, a line for each queue and class: "vision: guarantee 32 -> 48 GPUs, weight 1 -> 2".
std::vector<std::string> QueueChanges(const QueueTree& before, const QueueTree& after);

// What a tree promises and a cluster of this size does not have, in words. No errors: nodes come
// and go.
std::vector<std::string> QueueWarnings(const QueueTree& tree, const Amounts& cluster);

}  // namespace muster
