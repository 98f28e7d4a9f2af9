// The limits of what a worker sends, as its fields state them (proto/muster/v1/limits.proto).
//
// A worker applies them before it sends, a coordinator to what it receives: a faulty or hostile
// worker fills neither memory nor store, and what a rank says can not make its node's messages
// refused.
//
// Any thread.
#pragma once

#include <google/protobuf/message.h>

#include "common/base/status.h"

namespace muster {

// Cuts what may be cut of all that is in the message. kResourceExhausted names the first field that
// is over its limit and may not be cut; the message is of no use then.
Status ApplyLimits(google::protobuf::Message* message);

}  // namespace muster
