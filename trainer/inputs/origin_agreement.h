// What the trained tensors of a job with adapters belong to, and whether a saved state does too.
//
// An adapter over other weights, or at another scale, is another function, and nothing in its
// tensors shows that. So a state names its origin (AdapterOrigin), and a job that goes on from it
// compares that with what the job has now. A job that trains whole models has no origin.
//
// The trainer's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/comm/communicator.h"
#include "trainer/state/checkpoint/adapter_origin.h"
#include "trainer/state/snapshot/segment.h"

namespace muster {

// What PEFT finds the model in `dir` by, from wherever: a name of the Hub, if `given` is one, else
// the directory's whole path.
std::string BaseModelName(const std::string& dir, const std::string& given);

// Collective. This job's, the same on all ranks: where the model lies is said as rank 0 finds it.
// `base_weights` is what the ranks have agreed on. Nothing without train.lora.
Result<std::optional<AdapterOrigin>> AgreeOnOrigin(const TrainSpec& train,
                                                   const std::string& model_dir,
                                                   std::optional<std::uint64_t> base_weights,
                                                   Communicator& communicator);

// Whether a state of origin `saved` may be trained on by a job of origin `job`:
// kFailedPrecondition says what differs and what to do. A state that names none may.
Status CheckOrigin(const std::optional<AdapterOrigin>& saved,
                   const std::optional<AdapterOrigin>& job);

// Collective where the job has an origin: the same of the states in the segments that this process
// can read. Other ranks' findings are kUnavailable here.
Status AgreeOnSegments(const std::vector<const Segment*>& readable,
                       const std::optional<AdapterOrigin>& job, Communicator& communicator);

}  // namespace muster
