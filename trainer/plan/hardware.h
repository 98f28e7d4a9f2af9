// What a plan is made for: one kind of device, how many are in a node, how they are connected.
//
// Sizes are bytes, rates are per second and per direction. Peaks are the vendors' dense bf16
// figures without sparsity; the share that training reaches of them is of published runs, and
// rough: it is there to distinguish hours from days.
//
// Plain values; pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct Hardware {
  std::string name;              // "H100-80"
  std::string source;            // of the peak, for people
  bool is_host = false;          // a CPU: device memory and host memory are one
  double memory_bytes = 0;       // that a process can have, of a device
  double peak_tflops = 0;        // dense, in the compute type
  double achievable = 0.5;       // share of the peak that executed operations reach
  double memory_rate = 0;        // bytes per second of the device's own memory
  double link_rate = 0;          // between the devices of a node
  double host_rate = 0;          // between a device and its host
  double network_rate = 0;       // of a node, to others
  double host_memory_bytes = 0;  // of a node; 0: not known, so it is not judged
};

// "A100-40", "A100-80", "H100-80", "H200", "L40S", "A10", "RTX-4090", "RTX-3090".
std::vector<std::string> KnownDevices();
// By name, regardless of case. Nothing where it is not known.
std::optional<Hardware> FindHardware(std::string_view name);
// By the name that a CUDA device reports ("NVIDIA H100 80GB HBM3").
std::optional<Hardware> FindByDeviceName(std::string_view name);

}  // namespace muster
