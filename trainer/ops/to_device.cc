#include "trainer/ops/to_device.h"

#include <ATen/ATen.h>

namespace muster {

at::Tensor ToDevice(const at::Tensor& host, at::Device device) {
  if (device.is_cpu()) return host.clone();
  return host.pin_memory().to(device, /*non_blocking=*/true);
}

}  // namespace muster
