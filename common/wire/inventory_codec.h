// Converts between NodeInventory and its message (proto/muster/v1/common.proto). Pure; any thread.
#pragma once

#include "common/base/status.h"
#include "common/resources/node_inventory.h"
#include "muster/v1/common.pb.h"

namespace muster {

v1::NodeInventory ToProto(const NodeInventory& inventory);
NodeInventory FromProto(const v1::NodeInventory& inventory);

// kInvalidArgument: a count below 0, a device whose id cannot be one or comes twice.
Status CheckInventory(const v1::NodeInventory& inventory);

}  // namespace muster
