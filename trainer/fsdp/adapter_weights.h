// The first weights of a job with adapters: new ones, or those of a PEFT directory; and what of the
// trained tensors comes from the model's files.
//
// A new adapter changes nothing: B is zero, and A is uniform in +-1 / sqrt(in), as PEFT has it
// (Kaiming's with a = sqrt(5)). An element is a function of the seed, the tensor's name and its
// place, so every world size begins alike.
//
// The trainer's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/flat_layout.h"
#include "trainer/formats/safetensors.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

// Where the trained tensors of a job with adapters get their first values; `arrays` are
// ShardState::WeightArrays of `layout`.
struct TrainedTensors {
  const FlatLayout& layout;
  const std::vector<ShardArray>& arrays;
  const ArrayMemory& memory;
};

// Fills every adapter with new values. Not collective.
void InitAdapters(const TrainedTensors& trained, std::uint64_t seed);

// Collective, as LoadIntervalsTogether: the trained tensors that the model's files hold.
Status LoadTrainedOfModel(const SafetensorsModel* model, const TrainedTensors& trained,
                          Communicator& group, const std::function<void()>& on_read);

// Collective, likewise: every trained tensor from a PEFT directory's adapter_model.safetensors.
// kInvalidArgument where its adapter_config.json is of another form than `spec`, or where a tensor
// is missing, of another shape, or belongs to nothing; on the other ranks kUnavailable.
// kFailedPrecondition on all where the copies of two ranks have other values.
Status LoadAdapter(const std::string& dir, const LoraSpec& spec, const TrainedTensors& trained,
                   Communicator& group, const std::function<void()>& on_read);

}  // namespace muster
