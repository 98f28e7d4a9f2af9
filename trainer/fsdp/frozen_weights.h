// FrozenWeights: the tensors that a job with adapters reads and never changes.
//
// They are sharded and gathered as the trained ones are, but as bytes: each unit is one array of
// bytes, in which every tensor lies whole, of the compute type or, for the matrices of blocks, in
// NF4 (packed_tensor.h). There is one copy, no optimizer state and no gradient, and what has been
// gathered once stays good. Packed matrices are gathered as they are, 4 bits an element, and
// dequantised where they are used. With expert parallelism a rank gathers its own experts alone.
//
// With a retained memory they outlive the engine: the next one of the same layout, form and model
// finds them in memory, and nothing is read (frozen_store.h).
//
// Owned by the engine; the trainer's thread. Errors are the communicator's, and those of files.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/base/result.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/formats/safetensors.h"
#include "trainer/fsdp/frozen_layout.h"
#include "trainer/fsdp/frozen_store.h"
#include "trainer/fsdp/unit_views.h"
#include "trainer/fsdp/unsharded_parameters.h"
#include "trainer/model/packed_matrix.h"
#include "trainer/ops/device_ops.h"

namespace muster {

struct FrozenOptions {
  int rank = 0;  // within the shard group
  // Its ranks that have the same experts; null: all have all of them.
  Communicator* slices = nullptr;
  FrozenForm form;
  RetainedWeights* retained = nullptr;  // outlives the object; null: the weights end with it
  std::uint64_t source = 0;  // distinguishes the model's files from others; equal on all ranks
};

class FrozenWeights {
 public:
  // Collective. `shard` is the shard group, null if it has one rank. All outlive the object.
  static Result<std::unique_ptr<FrozenWeights>> Create(const Placement& placement,
                                                       Communicator* shard, DeviceOps& ops,
                                                       const FrozenOptions& options);

  // Collective over `world`, the ranks that LoadIntervalsTogether is about: `model` is null on a
  // rank without the files. Where all ranks have the weights in memory nothing is read. Besides its
  // errors kDataLoss where a tensor has a number that is not finite, by the name of the tensor.
  Status Load(const SafetensorsModel* model, Communicator& world,
              const std::function<void()>& on_read);

  void Prefetch(int unit) { gathered_->Prefetch(unit); }
  Status Wait(int unit) { return gathered_->Wait(unit); }
  // A step has failed: gathers under way are waited for and count no more.
  void Abandon() { gathered_->Invalidate(); }

  // Good between a Wait for the unit and the Prefetch of the next one in its place.
  const UnitWeights& weights(int unit) const { return views_[static_cast<std::size_t>(unit)]; }
  // Elements of the frozen tensors of all ranks together.
  std::int64_t parameter_count() const;
  // The weights that were there when they were to be loaded.
  bool kept() const { return kept_; }
  // Of this rank's shards, where they are not among its own gathered arrays; and of those.
  std::int64_t shard_bytes() const;
  std::int64_t gathered_bytes() const { return gathered_->bytes(); }

 private:
  // A tensor in NF4, and the part of a matrix that reads it; null: another rank's expert has it.
  struct Packed {
    int unit = 0;
    int tensor = 0;  // of the unit
    PackedLayout layout;
    std::shared_ptr<PackedMatrix> matrix;
    std::size_t part = 0;
    float offset = 0;  // of its absmax, what double quantisation has taken off

    void SetOffset(float value);
  };

  FrozenWeights(const Placement& placement, Communicator* shard, DeviceOps& ops,
                const FrozenOptions& options);
  // Whether the shards lie in host memory.
  bool on_host() const { return ops_.is_host() || placed_.from_host; }
  Status Place();
  void ViewUnitOf(int unit);
  std::uint64_t Content() const;
  Status LetOthersGo(Communicator& world);
  Status LoadMissing(const SafetensorsModel* model, Communicator& world,
                     const std::function<void()>& on_read);
  Status CheckFinite(const ShardArray& array) const;
  std::vector<ShardArray> OwnArrays() const;
  Status LoadPacked(const SafetensorsModel* model, Packed& packed, Communicator& world,
                    const std::function<void()>& on_read);
  Result<Nf4Tensor> QuantizeTogether(const at::Tensor& own, std::int64_t share,
                                     std::int64_t count) const;
  void Keep(Packed& packed, const Nf4Tensor& tensor);
  // How memory of the shards is written from host memory; empty: as host memory.
  ArrayMemory shard_memory() const;

  const std::vector<UnitSpec>& units_;
  const FlatLayout& layout_;  // elements are bytes
  const GatheredUnits& placed_;
  const FlatBuffer& own_shards_;  // that need not lie in the gathered arrays
  Communicator* const shard_;
  DeviceOps& ops_;
  const FrozenOptions options_;
  FrozenStore store_;
  bool kept_ = false;
  at::Tensor memory_;                              // of own_shards_
  std::unique_ptr<UnshardedParameters> gathered_;  // ends first: gathers under way read the shards
  std::vector<void*> shards_;                      // by unit
  std::vector<UnitWeights> views_;                 // by unit
  std::vector<Packed> packed_;
  at::Tensor nested_code_;  // of double quantisation, on the device
};

}  // namespace muster
