// UnshardedParameters: the whole weights of the units that are being computed with.
//
// Resident: the whole arrays of all units exist for the whole run and every rank's shard lies at
// its own place in them. So it is with one rank, where the arrays are the shards and nothing is
// ever copied; where the ranks share a host's memory, with one array for all of them and gathers
// that only wait for the peers' updates; and where the strategy keeps parameters gathered (ZeRO-2).
//
// In slots: the units between embedding and head share two slots, unit u in slot u % 2, so that the
// weights of one unit arrive while the other computes; embedding and head have a buffer of their
// own and stay for the whole step.
//
// Views into a unit's buffer stay valid for the run; they show the unit's weights between a Wait
// for it and the Prefetch of the next unit of the same slot. A unit that is still there is not
// gathered again until Invalidate. Which gathers are issued depends only on the order of calls,
// which is equal on all ranks.
//
// The trainer's thread. Errors are the communicator's. The destructor waits for gathers under way:
// abort the communicator first when a peer may be lost.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/fsdp/placement.h"
#include "trainer/ops/device_ops.h"

namespace muster {

// What of a shared or own array is not in the placement.
struct GatherOptions {
  int rank = 0;  // within the shard group
  // The ranks that gather the same slices of units; null: no unit has any.
  Communicator* slices = nullptr;
  // For an array that all ranks share: bytes behind the units, and the file of rank 0 that it is
  // made from (SharedRegion); -1: a new one.
  std::size_t bytes_behind = 0;
  int kept_file = -1;
  // Memory of an array of this rank's own that has the shards in it; empty: new.
  std::function<Result<at::Tensor>(std::size_t bytes)> allocate = {};
};

class UnshardedParameters {
 public:
  // Collective. `communicator` is the shard group's, null if it has one rank. All outlive the
  // object.
  static Result<std::unique_ptr<UnshardedParameters>> Create(const FlatLayout& layout,
                                                             const GatheredUnits& placed,
                                                             Communicator* communicator,
                                                             DeviceOps& ops,
                                                             const GatherOptions& options);
  ~UnshardedParameters();

  // Where this rank's shard of each unit must lie; null: it may lie anywhere (slots).
  std::vector<void*> OwnPlaces() const;
  // What gathers send, by unit: OwnPlaces, or the shards' own memory where that is null.
  void SetSources(std::vector<const void*> sources) { sources_ = std::move(sources); }

  // Starts the gather of `unit` unless its weights are there or on their way.
  void Prefetch(int unit);
  // Until the weights of `unit` are there; Prefetch is implied.
  Status Wait(int unit);
  // The shards have changed, or a step has failed: nothing gathered counts any more. Waits for
  // gathers under way.
  void Invalidate();

  void* data(int unit) const { return Element(placed_.begins[unit]); }
  // The one array of all ranks of the host; null: it is not so.
  const SharedRegion* region() const { return region_.get(); }
  // Allocated by this rank; a shared array is not counted.
  std::int64_t bytes() const;

 private:
  struct Slot {
    int unit = -1;  // whose weights are there or on their way
    std::unique_ptr<Work> gather;
    std::unique_ptr<DeviceCopy> copy;  // of the shard, from host memory
  };

  UnshardedParameters(const FlatLayout& layout, const GatheredUnits& placed,
                      Communicator* communicator, DeviceOps& ops, const GatherOptions& options);
  std::unique_ptr<Work> Gather(int unit, const void* shard);
  Status Allocate(const GatherOptions& options);
  void* Element(std::int64_t number) const {
    return static_cast<char*>(data_) +
           number * static_cast<std::int64_t>(ElementSize(placed_.buffer.type));
  }
  void* OwnPlace(int unit) const {
    const FlatUnit& flat = layout_.units()[unit];
    return Element(placed_.begins[unit] + flat.Shard(rank_).begin - flat.Slice(rank_).begin);
  }

  const FlatLayout& layout_;
  const GatheredUnits& placed_;
  Communicator* const communicator_;
  Communicator* const slices_;
  DeviceOps& ops_;
  const int rank_;
  std::unique_ptr<SharedRegion> region_;
  at::Tensor memory_;
  void* data_ = nullptr;
  std::map<std::int64_t, Slot> slots_;  // by where they begin
  std::vector<const void*> sources_;
};

}  // namespace muster
