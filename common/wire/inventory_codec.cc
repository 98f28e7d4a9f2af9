#include "common/wire/inventory_codec.h"

#include <set>
#include <string>

#include "common/base/text.h"

namespace muster {
namespace {

void Fill(const Device& from, v1::Device* to) {
  to->set_id(from.id);
  to->set_kind(ValidUtf8(from.kind));
  to->set_memory_bytes(from.memory_bytes);
  to->set_numa_node(from.numa_node);
  to->set_link_domain(from.link_domain);
  to->set_fault(ValidUtf8(from.fault));
  to->set_fake(from.fake);
  to->set_shared(from.shared);
}

Device Read(const v1::Device& from) {
  return {.id = from.id(),
          .kind = from.kind(),
          .memory_bytes = from.memory_bytes(),
          .numa_node = from.numa_node(),
          .link_domain = from.link_domain(),
          .fault = from.fault(),
          .fake = from.fake(),
          .shared = from.shared()};
}

// Ids of devices become words of events and names of files.
bool IsDeviceId(const std::string& id) {
  constexpr char kAllowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.#:";
  return !id.empty() && id.front() != '.' && id.find_first_not_of(kAllowed) == std::string::npos;
}

}  // namespace

v1::NodeInventory ToProto(const NodeInventory& from) {
  v1::NodeInventory to;
  for (const Device& device : from.devices) Fill(device, to.add_devices());
  to.set_cpus(from.cpus);
  to.set_memory_bytes(from.memory_bytes);
  for (const auto& [key, value] : from.labels) {
    v1::Label& label = *to.add_labels();
    label.set_key(key);
    label.set_value(value);
  }
  to.set_block(from.topology.block);
  to.set_rack(from.topology.rack);
  to.set_switch_(from.topology.switch_name);
  return to;
}

NodeInventory FromProto(const v1::NodeInventory& from) {
  NodeInventory to{
      .cpus = from.cpus(),
      .memory_bytes = from.memory_bytes(),
      .topology = {.block = from.block(), .rack = from.rack(), .switch_name = from.switch_()}};
  for (const v1::Device& device : from.devices()) to.devices.push_back(Read(device));
  for (const v1::Label& label : from.labels()) to.labels[label.key()] = label.value();
  return to;
}

Status CheckInventory(const v1::NodeInventory& inventory) {
  if (inventory.cpus() < 0) return InvalidArgument("it reports fewer than 0 CPUs");
  std::set<std::string> ids;
  for (const v1::Device& device : inventory.devices()) {
    if (!IsDeviceId(device.id()))
      return InvalidArgument("it reports a device whose id cannot be one");
    if (!ids.insert(device.id()).second)
      return InvalidArgument("it reports device " + device.id() + " twice");
  }
  return OkStatus();
}

}  // namespace muster
