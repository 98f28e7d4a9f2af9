// Whether all ranks train the same model on the same rows with the same settings.
//
// Every rank reads its own files, on its own node. Copies that differ would not stop training: each
// rank would pass other rows off as its part of the batch, or update its shard at another rate.
#pragma once

#include <optional>

#include "common/job_spec/job_spec.h"
#include "trainer/distributed/communicator.h"
#include "trainer/loop/failure.h"
#include "trainer/loop/train_inputs.h"

namespace muster {

// Collective; the trainer's thread. Every rank gets a failure that names what differs and what it
// has read itself.
std::optional<Failure> AgreeOnInputs(const JobSpec& spec, const TrainInputs& inputs,
                                     Communicator& communicator);

}  // namespace muster
