// Converts between the messages of proto/muster/v1/worker_api.proto and the plain values of
// common/wire/messages.h: the only place where the two meet, for both daemons and the simulation.
//
// What a worker sends has limits (common/rpc/message_limits.h): it is cut, or kResourceExhausted.
// Text that is not UTF-8 is repaired when it is sent, since protobuf strings carry nothing else.
// What comes in is checked for what a peer could get wrong and the cores rely on (names, counts, a
// body that is there); kInvalidArgument names the field. What only a newer peer knows, a message or
// an enum's value that says what it is about, is kUnimplemented: the receiver goes on without it.
// Pure functions; any thread.
#pragma once

#include "common/base/result.h"
#include "common/wire/messages.h"
#include "muster/v1/worker_api.pb.h"

namespace muster {

v1::Hello ToProto(const Hello& hello);
// Without a common protocol version, only the fields that identify the worker are read.
Result<Hello> FromProto(v1::Hello hello);

v1::WorkerMessage ToProto(const WorkerMessage& message);
// A Hello is an error here: it comes once, first.
Result<WorkerMessage> FromProto(v1::WorkerMessage message);

v1::CoordinatorMessage ToProto(const CoordinatorMessage& message);
Result<CoordinatorMessage> FromProto(const v1::CoordinatorMessage& message);

v1::CheckpointInfo ToProto(const CheckpointInfo& checkpoint);
v1::RankProgress ToProto(const RankProgress& progress);

// The row of a build's table of versions.
inline v1::VersionRange ToProto(const NamedVersions& row) {
  v1::VersionRange out;
  out.set_key(row.key);
  out.set_min(row.range.min);
  out.set_max(row.range.max);
  return out;
}

}  // namespace muster
