// Whether all ranks train the same model on the same rows with the same settings.
//
// Every rank reads its own files, on its own node. Copies that differ would not stop training: each
// rank would pass other rows off as its part of the batch, or update its shard at another rate.
#pragma once

#include <cstdint>
#include <optional>

#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/core/train_status.h"
#include "trainer/inputs/train_inputs.h"

namespace muster {

// Of everything that numbers, collectives and checkpoints depend on. Paths are left out: nodes may
// keep their copies at different places.
std::uint64_t SettingsFingerprint(const TrainSpec& train);

// Collective; the trainer's thread. TrainInputs::base_weights of those ranks that have the files;
// nothing where no rank has them. Where ranks differ each fails, and names what differs and what it
// has read itself.
TrainResult<std::optional<std::uint64_t>> AgreeOnInputs(const JobSpec& spec,
                                                        const TrainInputs& inputs,
                                                        Communicator& communicator);

}  // namespace muster
