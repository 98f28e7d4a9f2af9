#include "trainer/fsdp/host_gradients.h"

#include "common/base/check.h"
#include "trainer/ops/convert.h"

namespace muster {

HostGradients::HostGradients(DeviceOps& device, DeviceOps& host, const FlatBuffer& buffer)
    : device_(device),
      host_(host),
      type_(buffer.type),
      device_memory_(device.Allocate(static_cast<std::size_t>(buffer.bytes()))),
      host_memory_(device.AllocateHost(static_cast<std::size_t>(buffer.bytes()))) {
  const std::size_t bytes = static_cast<std::size_t>(buffer.bytes()) / places_.size();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    places_[i].device = static_cast<char*>(device_memory_.data_ptr()) + i * bytes;
    places_[i].landing = static_cast<char*>(host_memory_.data_ptr()) + i * bytes;
  }
}

void* HostGradients::TakePlace() {
  Place& place = places_[next_];
  next_ = (next_ + 1) % static_cast<int>(places_.size());
  Settle(place);
  return place.device;
}

void HostGradients::Start(void* place, void* sum, std::int64_t count, bool add) {
  for (Place& each : places_) {
    if (each.device != place) continue;
    each.sum = sum;
    each.count = count;
    each.add = add;
    each.copy = device_.Copy(add ? each.landing : sum, each.device,
                             static_cast<std::size_t>(count) * ElementSize(type_));
    return;
  }
  MUSTER_CHECK(false, "a gradient is sent from a place that is not the object's");
}

void HostGradients::Finish() {
  for (Place& place : places_) Settle(place);
}

void HostGradients::Settle(Place& place) {
  if (place.copy == nullptr) return;
  place.copy->WaitOnHost();
  place.copy.reset();
  if (place.add) host_.Run(op::Convert{place.landing, type_, place.sum, type_, place.count, true});
}

}  // namespace muster
