// Between the messages of proto/muster/v1 and the plain values that the controller speaks.
//
// The only place where the two meet. What comes in is checked for what a peer could get wrong and
// the controller relies on (names, counts, a body that is there); kInvalidArgument names the field.
//
// Pure functions; any thread.
#pragma once

#include "common/base/result.h"
#include "coordinator/control/controller.h"
#include "coordinator/control/messages.h"
#include "coordinator/domain/goodput.h"
#include "coordinator/domain/records.h"
#include "muster/v1/client_api.pb.h"
#include "muster/v1/worker_api.pb.h"

namespace muster {

// --- worker stream ---

Result<Hello> FromProto(const v1::Hello& hello);
// Everything but Hello and LogChunk, which the service handles itself.
Result<WorkerMessage> FromProto(const v1::WorkerMessage& message);
v1::CoordinatorMessage ToProto(const CoordinatorMessage& message);

// --- clients ---

enum class JobDetail {
  kSummary,  // without ranks, attempts, checkpoints, progress and specification
  kFull,
};
// Its usage is that of `now`.
v1::Job ToProto(const JobView& view, JobDetail detail, TimePoint now);
v1::Goodput ToProto(const Goodput& goodput);
v1::Event ToProto(const EventRecord& event);
v1::Node ToProto(const NodeView& view);
v1::CheckpointInfo ToProto(const CheckpointRecord& checkpoint);

}  // namespace muster
