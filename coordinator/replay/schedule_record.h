// A pass of the scheduler as a message: its snapshot, and the plan that followed from it.
//
// The only place that knows this form (proto/muster/v1/schedule.proto). What is read back plans as
// what was written, to the byte. Pure; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "coordinator/scheduler/scheduler.h"
#include "muster/v1/schedule.pb.h"

namespace muster {

v1::SchedulePlan ToProto(const SchedulePlan& plan);
v1::SchedulePass ToProto(const SchedulerSnapshot& snapshot, const SchedulePlan& plan,
                         std::int64_t unix_ms);

// A snapshot with what it points to. Moves, and is not copied.
struct OwnedSnapshot {
  std::vector<NodeInventory> inventories;
  std::unique_ptr<QueueTree> queues;
  SchedulerSnapshot snapshot;
};

// kDataLoss: it is none that a scheduler could have been given; nothing that passes is more than
// the scheduler can take.
Result<OwnedSnapshot> FromProto(const v1::ScheduleSnapshot& snapshot);

// What this program plans for the snapshot of a pass.
Result<v1::SchedulePlan> Replan(const v1::SchedulePass& pass);

enum class Times { kSeconds, kNanoseconds };

// A decision a line, in the order of the plan, times from `now` on: "7f3a9c1e2b starts on n1 [0 1],
// n2 [0 1]", "9c0d waits: needs 1 node ...; starts in 1h 5m 0s at the latest on n1 [0]". With
// nanoseconds, the lines of different plans differ.
std::vector<std::string> DecisionTexts(const v1::SchedulePlan& plan, std::int64_t now,
                                       Times times = Times::kSeconds);

}  // namespace muster
