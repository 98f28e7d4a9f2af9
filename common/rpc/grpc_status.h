// Between muster::Status and grpc::Status. The codes are numerically equal, so nothing is lost;
// only a message longer than the metadata limit is cut.
//
// Pure functions; any thread.
#pragma once

#include <grpcpp/support/status.h>

#include "common/base/status.h"

namespace muster {

grpc::Status ToGrpcStatus(const Status& status);
Status FromGrpcStatus(const grpc::Status& status);

}  // namespace muster
