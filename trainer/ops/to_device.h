// Small arrays on their way from the host to a device.
#pragma once

#include <ATen/core/Tensor.h>

namespace muster {

// A copy of a host's tensor, which may go at once, in the device's memory; on a host in its own. By
// way of pinned memory, so that the copy is one more entry of the current stream: from other memory
// the host would wait for all that the device has in hand.
at::Tensor ToDevice(const at::Tensor& host, at::Device device);

}  // namespace muster
