// StateSnapshots: seals the state of an engine in its segment, by the sealing rule
// (docs/recovery.md).
//
// Where the state lies in the segment, sealing is one store. Where it does not (on a device, or
// when only every n-th step is sealed), it is copied into the slot that is not the newest, on a
// device beside the computation, and sealed when it has arrived. A step that changed nothing puts
// its label beside the one before.
//
// Belongs to one engine; the trainer's thread. The state, segment and buddy outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "common/base/status.h"
#include "trainer/fsdp/shard_state.h"
#include "trainer/ops/device_ops.h"
#include "trainer/state/checkpoint/checkpoint.h"
#include "trainer/state/snapshot/buddy.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

class StateSnapshots {
 public:
  // `ops`: what the state's memory belongs to. `every`: of so many steps one is sealed.
  StateSnapshots(const ShardState& state, Segment& segment, DeviceOps& ops, std::int64_t every);
  // Waits for copies under way.
  ~StateSnapshots();
  StateSnapshots(const StateSnapshots&) = delete;
  StateSnapshots& operator=(const StateSnapshots&) = delete;

  // Null: no rank keeps a copy of this segment.
  void SetBuddy(Buddy* buddy) { buddy_ = buddy; }

  // The optimizer has written to the state since the last Take.
  void NoteUpdate() { changed_ = true; }
  // The state, which no update is writing to, is that of cursor.step: seals it or starts its copy,
  // where its turn has come. The first one always has.
  void Take(const TrainCursor& cursor);
  // Until what was taken is sealed.
  void Complete();
  // The same, and until the buddy has it: before the last collective of a step. The communicator's
  // errors.
  Status Finish();

 private:
  void StartCopies();
  void SealNow(const TrainCursor& cursor, int slot);

  const ShardState& state_;
  Segment& segment_;
  DeviceOps& ops_;
  const std::int64_t every_;
  Buddy* buddy_ = nullptr;
  std::vector<std::shared_ptr<void>> pinned_;
  bool taken_any_ = false;
  bool changed_ = true;  // since the last Take
  int slot_ = 0;         // that was filled last
  std::vector<std::unique_ptr<DeviceCopy>> copies_;
  std::optional<TrainCursor> arriving_;  // of the copies under way
};

}  // namespace muster
